// A proxy in small for tests: answers each line by a function, in its own thread, on a unix socket.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace andrea::testing {

/// A directory that goes away with the test.
class SocketDirectory {
 public:
  SocketDirectory() {
    char name[] = "/tmp/andrea-proxy-XXXXXX";
    if (::mkdtemp(name) == nullptr) std::abort();
    path_ = name;
  }
  ~SocketDirectory() {
    ::unlink(socket().c_str());
    ::rmdir(path_.c_str());
  }
  SocketDirectory(const SocketDirectory&) = delete;
  SocketDirectory& operator=(const SocketDirectory&) = delete;
  std::string socket() const { return path_ + "/p"; }
  std::string address() const { return "unix:" + socket(); }

 private:
  std::string path_;
};

/// Listens until destroyed. `answer` gets a line and returns what to send back: raw bytes, nothing (stay
/// silent), or an empty string (close the connection).
class FakeProxy {
 public:
  using Answer = std::function<std::optional<std::string>(const std::string& line)>;

  FakeProxy(const std::string& path, Answer answer) : path_(path), answer_(std::move(answer)) {
    ::unlink(path.c_str());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    if (::listen(listener_, 4) != 0) std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeProxy() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
  }
  FakeProxy(const FakeProxy&) = delete;
  FakeProxy& operator=(const FakeProxy&) = delete;

  std::vector<std::string> lines() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  bool readable(int fd) const {
    while (!stop_) {
      pollfd waiting{fd, POLLIN, 0};
      if (::poll(&waiting, 1, 10) > 0) return true;
    }
    return false;
  }

  void serve() {
    while (readable(listener_)) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      converse(fd);
      ::close(fd);
    }
  }

  void converse(int fd) {
    std::string buffer;
    char block[65536];
    while (readable(fd)) {
      const ssize_t n = ::recv(fd, block, sizeof block, 0);
      if (n <= 0) return;
      buffer.append(block, static_cast<std::size_t>(n));
      for (std::size_t end; (end = buffer.find('\n')) != std::string::npos;) {
        const std::string line = buffer.substr(0, end);
        buffer.erase(0, end + 1);
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          lines_.push_back(line);
        }
        const std::optional<std::string> reply = answer_(line);
        if (!reply) continue;
        if (reply->empty()) return;
        for (std::size_t sent = 0; sent < reply->size();) {
          const ssize_t m = ::send(fd, reply->data() + sent, reply->size() - sent, MSG_NOSIGNAL);
          if (m <= 0) return;
          sent += static_cast<std::size_t>(m);
        }
      }
    }
  }

  std::string path_;
  Answer answer_;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

}  // namespace andrea::testing
