#include "engine/run/proxy_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/errors.h"

namespace andrea {
namespace {

constexpr int kSliceMilliseconds = 50;

std::string reason(int error) { return std::strerror(error); }

[[noreturn]] void no_address(const std::string& text, const std::string& why) {
  throw ConfigError("--proxy " + text + ": " + why + "; give unix:PATH or tcp:127.0.0.1:PORT");
}

/// The address as the system takes it; its length in `size`.
sockaddr_storage system_address(const ProxyAddress& address, socklen_t* size) {
  sockaddr_storage storage{};
  if (!address.path.empty()) {
    auto* local = reinterpret_cast<sockaddr_un*>(&storage);
    local->sun_family = AF_UNIX;
    std::memcpy(local->sun_path, address.path.data(), address.path.size());
    *size = static_cast<socklen_t>(sizeof(sockaddr_un));
  } else if (address.host.find(':') != std::string::npos) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(address.port));
    ::inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr);
    *size = static_cast<socklen_t>(sizeof(sockaddr_in6));
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(address.port));
    ::inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr);
    *size = static_cast<socklen_t>(sizeof(sockaddr_in));
  }
  return storage;
}

}  // namespace

ProxyAddress parse_proxy_address(const std::string& text) {
  ProxyAddress address;
  if (text.rfind("unix:", 0) == 0) {
    address.path = text.substr(5);
    if (address.path.empty()) no_address(text, "the path is missing");
    if (address.path.size() >= sizeof(sockaddr_un::sun_path)) no_address(text, "the path is too long");
    if (address.path.find('\0') != std::string::npos) no_address(text, "the path holds a zero byte");
    return address;
  }
  if (text.rfind("tcp:", 0) != 0) no_address(text, "unknown kind");
  const std::string rest = text.substr(4);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string::npos) no_address(text, "the port is missing");
  address.host = rest.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host == "localhost") address.host = "127.0.0.1";
  const std::string port = rest.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  address.port = digits ? std::stoi(port) : 0;
  if (address.port < 1 || address.port > 65535) no_address(text, "the port must lie in 1..65535");
  in_addr v4{};
  const bool loopback_v4 =
      ::inet_pton(AF_INET, address.host.c_str(), &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
  if (!loopback_v4 && address.host != "::1") no_address(text, "only this machine's loopback is allowed");
  return address;
}

void ProxySocket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  buffer_.clear();
}

void ProxySocket::wait_for(short events, Clock::time_point deadline, const GiveUp& give_up) const {
  for (;;) {
    if (give_up && give_up()) throw ProxyFault("interrupted while waiting");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) throw ProxyFault("no answer in time");
    pollfd waiting{fd_, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long long>(left, kSliceMilliseconds)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw ProxyFault("poll: " + reason(errno));
  }
}

void ProxySocket::open(const ProxyAddress& address, Clock::time_point deadline, const GiveUp& give_up) {
  close();
  socklen_t size = 0;
  const sockaddr_storage storage = system_address(address, &size);
  fd_ = ::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw ProxyFault("socket: " + reason(errno));
  if (address.path.empty()) {
    const int on = 1;  // a phase is one short exchange: do not wait for more to send
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), size) == 0) return;
  if (errno != EINPROGRESS) {
    const std::string why = reason(errno);
    close();
    throw ProxyFault("nobody listens there (" + why + ")");
  }
  try {
    wait_for(POLLOUT, deadline, give_up);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) throw ProxyFault("nobody listens there (" + reason(error) + ")");
  } catch (...) {
    close();
    throw;
  }
}

void ProxySocket::send_line(const std::string& line, Clock::time_point deadline, const GiveUp& give_up) {
  const std::string bytes = line + '\n';
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for(POLLOUT, deadline, give_up);
    } else if (n < 0 && errno != EINTR) {
      throw ProxyFault("it closed the connection (" + reason(errno) + ")");
    }
  }
}

std::string ProxySocket::receive_line(std::size_t max_bytes, Clock::time_point deadline,
                                      const GiveUp& give_up) {
  std::size_t searched = 0;
  char block[65536];
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos && end <= max_bytes) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    searched = buffer_.size();
    if (searched > max_bytes)
      throw ProxyFault("a line of more than " + std::to_string(max_bytes) + " bytes came");
    const ssize_t n = ::recv(fd_, block, sizeof block, 0);
    if (n > 0) {
      buffer_.append(block, static_cast<std::size_t>(n));
    } else if (n == 0) {
      throw ProxyFault("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLIN, deadline, give_up);
    } else if (errno != EINTR) {
      throw ProxyFault("it closed the connection (" + reason(errno) + ")");
    }
  }
}

}  // namespace andrea
