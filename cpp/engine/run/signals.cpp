#include "engine/run/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace andrea {
namespace {

static_assert(std::atomic<int>::is_always_lock_free, "handlers may touch lock-free atomics only");
std::atomic<int> stop_signal_requested{0};
std::atomic<int> checkpoint_requested{0};
std::atomic<int> stops_received{0};

constexpr int kSignals[3] = {SIGTERM, SIGINT, SIGUSR1};

extern "C" void on_signal(int signal) {
  if (signal == SIGUSR1) {
    checkpoint_requested.store(1);
    return;
  }
  if (stops_received.fetch_add(1) > 0) ::_exit(128 + signal);
  stop_signal_requested.store(signal);
}

}  // namespace

bool SignalRequests::stop() { return stop_signal_requested.load() != 0; }
int SignalRequests::stop_signal() { return stop_signal_requested.load(); }
bool SignalRequests::checkpoint_asked() { return checkpoint_requested.load() != 0; }
bool SignalRequests::take_checkpoint() { return checkpoint_requested.exchange(0) != 0; }
void SignalRequests::request_stop(int signal) { stop_signal_requested.store(signal); }
void SignalRequests::request_checkpoint() { checkpoint_requested.store(1); }

void SignalRequests::clear() {
  stop_signal_requested.store(0);
  checkpoint_requested.store(0);
  stops_received.store(0);
}

SignalHandlers::SignalHandlers() {
  stops_received.store(0);
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a wait wakes up and looks at the flags
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &action, &previous_[i]);
}

SignalHandlers::~SignalHandlers() {
  for (int i = 0; i < 3; ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

}  // namespace andrea
