#include "engine/run/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "engine/errors.h"
#include "engine/files/mapped_file.h"

namespace andrea {
namespace {

static_assert(std::atomic<int>::is_always_lock_free, "handlers may touch lock-free atomics only");
std::atomic<int> stop_signal_requested{0};
std::atomic<int> checkpoint_requested{0};
std::atomic<int> stops_received{0};

constexpr int kSignals[4] = {SIGTERM, SIGINT, SIGUSR1, SIGBUS};
struct sigaction bus_before;  // what SIGBUS did before our handler

extern "C" void on_signal(int signal) {
  if (signal == SIGUSR1) {
    checkpoint_requested.store(1);
    return;
  }
  if (stops_received.fetch_add(1) > 0) ::_exit(128 + signal);
  stop_signal_requested.store(signal);
}

void say(const char* text) { [[maybe_unused]] const auto written = ::write(2, text, std::strlen(text)); }

// Async-signal-safe calls only.
extern "C" void on_bus_error(int signal, siginfo_t* info, void*) {
  if (const char* path = info->si_code > 0 ? mapped_path_at(info->si_addr) : nullptr) {
    say("\nandrea: ");
    say(path);
    say(": cannot be read any more: it was cut short while it was in use, or its disk fails. "
        "The checkpoints are as they were: bring the file back and go on with --resume\n");
    ::_exit(static_cast<int>(ExitCode::kIo));
  }
  // Not ours. What read there reads again when this returns, and then meets the handler from before.
  ::sigaction(SIGBUS, &bus_before, nullptr);
  if (info->si_code <= 0) ::raise(signal);
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
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, nullptr, &bus_before);  // known before our handler may need it
  ::sigaction(SIGBUS, &action, &previous_[3]);
}

SignalHandlers::~SignalHandlers() {
  for (int i = 0; i < 4; ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

}  // namespace andrea
