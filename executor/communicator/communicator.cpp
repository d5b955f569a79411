#include "executor/communicator/communicator.hpp"

#include "executor/device/device.hpp"

namespace zeroplan::executor {

void Communicator::enqueue(const Transfer& transfer, Device& device, program::Stream stream,
                           const Watch& watch) {
  const auto call = [](void* self, const void* what) {
    static_cast<Communicator*>(self)->run(*static_cast<const Transfer*>(what));
  };
  device.run_on_host(stream, {call, this, &transfer}, watch);
}

void Communicator::run(const Transfer& transfer) {
  switch (transfer.kind) {
    case TransferKind::all_reduce:
      return all_reduce(transfer.whole, transfer.reduction);
    case TransferKind::reduce_scatter:
      return reduce_scatter(transfer.whole);
    case TransferKind::all_gather:
      return all_gather(transfer.own, transfer.whole);
    case TransferKind::broadcast:
      return broadcast(transfer.whole, transfer.other);
    case TransferKind::send:
      return send(transfer.whole, transfer.other);
    case TransferKind::receive:
      return receive(transfer.whole, transfer.other);
  }
}

}  // namespace zeroplan::executor
