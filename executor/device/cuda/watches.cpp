#include "executor/device/cuda/watches.hpp"

namespace zeroplan::executor::cuda {

std::size_t Watches::record(cudaStream_t on) {
  if (used_ == events_.size()) events_.push_back(make_event(true));
  check(cudaEventRecord(events_[used_].get(), on), "cudaEventRecord");
  return used_++;
}

void Watches::begin(program::Stream stream, cudaStream_t on, const Watch& watch) {
  Lane& own = lane(stream);
  if (watch.seconds == nullptr) return;
  own.begun = own.last != kNone ? own.last : record(on);
}

void Watches::end(program::Stream stream, cudaStream_t on, const Watch& watch) {
  Lane& own = lane(stream);
  if (watch.seconds == nullptr && watch.progress == nullptr) {
    own.last = kNone;
    return;
  }
  own.last = record(on);
  own.works.push_back({watch, own.begun, own.last, next_order_++});
}

void Watches::begin_wait(program::Stream stream, cudaStream_t on, double* held) {
  Lane& own = lane(stream);
  if (held != nullptr) own.begun = own.last != kNone ? own.last : record(on);
}

void Watches::end_wait(program::Stream stream, cudaStream_t on, double* held) {
  Lane& own = lane(stream);
  own.last = kNone;  // what follows may begin later than the work before ended
  if (held == nullptr) return;
  own.last = record(on);
  waits_.push_back({held, own.begun, own.last});
}

float Watches::seconds_between(std::size_t begin, std::size_t end) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events_[begin].get(), events_[end].get()),
        "cudaEventElapsedTime");
  return milliseconds / 1000;
}

void Watches::note(std::size_t stream, const Work& work) const {
  if (work.watch.seconds != nullptr) *work.watch.seconds = seconds_between(work.begin, work.end);
  if (work.watch.progress != nullptr)
    work.watch.progress->finished[stream].store(work.watch.number, std::memory_order_relaxed);
}

void Watches::look() {
  for (std::size_t stream = 0; stream < lanes_.size(); ++stream) {
    Lane& own = lanes_[stream];
    while (own.seen < own.works.size() &&
           cudaEventQuery(events_[own.works[own.seen].end].get()) == cudaSuccess) {
      note(stream, own.works[own.seen++]);
    }
  }
  (void)cudaGetLastError();  // "not ready" is no error
}

void Watches::settle() {
  for (std::size_t stream = 0; stream < lanes_.size(); ++stream) {
    Lane& own = lanes_[stream];
    while (own.seen < own.works.size()) note(stream, own.works[own.seen++]);
  }
  for (const Wait& wait : waits_) *wait.held += static_cast<double>(seconds_between(wait.begin, wait.end));
  forget();
}

void Watches::fail() {
  const Work* oldest = nullptr;
  for (const Lane& own : lanes_) {
    if (own.seen == own.works.size()) continue;
    const Work& next = own.works[own.seen];
    if (next.watch.progress != nullptr && (oldest == nullptr || next.order < oldest->order)) oldest = &next;
  }
  if (oldest != nullptr) oldest->watch.progress->fail(oldest->watch.number);
}

void Watches::forget() {
  for (Lane& own : lanes_) {
    own.works.clear();
    own.seen = 0;
    own.last = kNone;
  }
  waits_.clear();
  used_ = 0;
}

}  // namespace zeroplan::executor::cuda
