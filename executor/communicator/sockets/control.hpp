#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/failure.hpp"
#include "executor/communicator/sockets/frame.hpp"
#include "executor/communicator/sockets/socket_communicator.hpp"

// What runs beside the collectives. For the implementation of sockets/ only.
namespace zeroplan::executor::sockets {

// What a rank has to say when it fails or finds a failure.
struct FailureReport {
  Failure failure;
  std::vector<std::int64_t> about;  // ranks whose activities belong behind the text
};
FailureReport report_of(Failure::Kind kind, std::string text, std::vector<std::int64_t> about);

// An event that poll() can wait for.
class Event {
 public:
  Event();
  void set() const;
  void clear() const;
  int descriptor() const { return socket_.get(); }

 private:
  Socket socket_;
};

// A thread that keeps a line to every rank (on rank 0) or to rank 0 (on the others), so that failures are
// known while ranks compute. Ranks send signs of life and what they are doing; rank 0 decides on the one
// failure that ends the run, the first that it hears of, and tells everyone. Where rank 0 itself is gone,
// each of the others finds that. The public functions are for the rank's thread.
class Control {
 public:
  // `streams`: as in Rendezvous. `options` must outlive this.
  Control(const SocketOptions& options, std::vector<FrameStream> streams);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void set_activity(Activity activity);
  std::string activity() const;

  // There is a verdict, or this rank has reported and so takes part in nothing more.
  bool stopped() const;
  // Ready to be read once there is a verdict.
  int stopped_descriptor() const { return stopped_.descriptor(); }

  // Reports and goes on: the verdict is there later. Only the first report counts.
  void report(FailureReport report);
  // Waits for the verdict: on this report, or on an earlier one.
  Failure stop(FailureReport report);
  // This rank's work is done; waits for the other ranks'. The verdict when one of them fails.
  std::optional<Failure> finish();

 private:
  struct Peer {
    FrameStream stream;
    Clock::time_point heard;
    std::string activity{};
    bool returned = false;
  };
  struct Pending {
    FailureReport report;
    Clock::time_point decide;
  };

  bool is_hub() const { return options_.rank == 0; }
  std::int64_t rank_of(const Peer& peer) const { return is_hub() ? &peer - peers_.data() : 0; }
  std::string text_about(const FailureReport& report) const;
  void send_to_all(const Frame& frame);

  void run();
  void exchange_frames(Clock::time_point deadline);
  void receive_from(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void take_requests();
  void send_failure(const FailureReport& report);
  void decide_after(FailureReport report, std::chrono::milliseconds time);
  void beat();
  void require_signs_of_life();
  void publish(Failure verdict);
  void publish_all_returned();
  void require_own_end();
  bool may_leave() const;

  const SocketOptions& options_;
  // Of the thread alone:
  std::vector<Peer> peers_;  // by rank on rank 0, whose own is closed
  std::optional<Pending> pending_;
  std::string sent_activity_;
  int beats_ = 0;
  std::optional<Clock::time_point> over_since_;  // there is a verdict, or all returned

  Event requested_, stopped_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Activity activity_ = [] { return std::string("the start of its work"); };
  std::optional<FailureReport> report_;
  bool returned_ = false;  // this rank
  std::optional<Failure> verdict_;
  bool all_returned_ = false;
  bool told_ = false;  // this rank's thread knows that the run is over
  bool leaving_ = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace zeroplan::executor::sockets
