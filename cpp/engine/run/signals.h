// SIGTERM and SIGINT ask the run to stop, SIGUSR1 asks for a checkpoint. The handlers set a flag, nothing
// else.
#pragma once

#include <signal.h>

namespace andrea {

/// What was asked for since the last call to take_*.
struct SignalRequests {
  static bool stop();              ///< SIGTERM or SIGINT came (stays set)
  static int stop_signal();        ///< which one; 0: none
  static bool checkpoint_asked();  ///< SIGUSR1 came; leaves the request standing
  static bool take_checkpoint();   ///< SIGUSR1 came; clears the request
  static void request_stop(int signal);
  static void request_checkpoint();
  static void clear();
};

/// Installs the handlers for its lifetime and puts the previous ones back. A second SIGINT or SIGTERM leaves
/// at once with _exit(128 + signal). SIGBUS in a mapped file (it was cut, or its disk fails) names the file
/// and leaves with _exit(74); any other SIGBUS goes to the previous handler.
class SignalHandlers {
 public:
  SignalHandlers();
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  struct sigaction previous_[4];
};

}  // namespace andrea
