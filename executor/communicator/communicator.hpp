#pragma once

#include "executor/communicator/control_plane.hpp"
#include "executor/communicator/data_plane.hpp"

namespace zeroplan::executor {

// Both planes of a group, where the processors of the host move the data: threads/ (ranks are threads of one process),
// mpi/ and sockets/ (ranks are processes). The calls block until this rank's part is done; enqueue() makes them where a
// stream of the device runs work of the host. Tensors are memory that the host's processors reach.
class Communicator : public ControlPlane, public DataPlane {
 public:
  std::int64_t rank() const override = 0;
  std::int64_t size() const override = 0;

  // As Transfer says of each. They throw std::logic_error where this rank's own arguments cannot be.
  virtual void all_reduce(Tensor whole, Reduction reduction) = 0;
  virtual void reduce_scatter(Tensor whole) = 0;
  virtual void all_gather(Tensor own, Tensor whole) = 0;
  virtual void broadcast(Tensor whole, std::int64_t root) = 0;

  // A message from one rank to another, of which the two call one each; both name the same length and type. A send may
  // wait for its receive, so two ranks that send to each other at a time must not both send first.
  virtual void send(Tensor tensor, std::int64_t to) = 0;
  virtual void receive(Tensor tensor, std::int64_t from) = 0;

  void enqueue(const Transfer& transfer, Device& device, program::Stream stream, const Watch& watch) final;

 private:
  void run(const Transfer& transfer);
};

}  // namespace zeroplan::executor
