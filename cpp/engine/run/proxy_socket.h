// One line out, one line in, over a local stream socket, with a deadline and a way to be interrupted.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

namespace andrea {

/// Why a conversation with the proxy broke off: it is not there, too slow, gone, or speaks nonsense.
class ProxyFault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where the proxy listens: unix:PATH or tcp:127.0.0.1:PORT (loopback only).
struct ProxyAddress {
  std::string path;  ///< of a unix socket; empty: tcp
  std::string host;  ///< numeric, in 127.0.0.0/8 or ::1
  int port = 0;
};

/// ConfigError if `text` is no such address.
ProxyAddress parse_proxy_address(const std::string& text);

/// A connection; move-only would be more than it needs: it is opened, used, closed by one owner.
class ProxySocket {
 public:
  using Clock = std::chrono::steady_clock;
  /// Asked every 50 ms while waiting; true: give up now.
  using GiveUp = std::function<bool()>;

  ProxySocket() = default;
  ~ProxySocket() { close(); }
  ProxySocket(const ProxySocket&) = delete;
  ProxySocket& operator=(const ProxySocket&) = delete;

  bool is_open() const { return fd_ >= 0; }
  void close();
  /// ProxyFault if nobody listens there before the deadline.
  void open(const ProxyAddress& address, Clock::time_point deadline, const GiveUp& give_up);
  /// Sends `line` and a newline. ProxyFault; the connection is then of no more use.
  void send_line(const std::string& line, Clock::time_point deadline, const GiveUp& give_up);
  /// The next line without its newline, at most `max_bytes` long. ProxyFault.
  std::string receive_line(std::size_t max_bytes, Clock::time_point deadline, const GiveUp& give_up);

 private:
  void wait_for(short events, Clock::time_point deadline, const GiveUp& give_up) const;

  int fd_ = -1;
  std::string buffer_;
};

}  // namespace andrea
