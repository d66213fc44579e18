#include "lib/daemon/http_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::daemon {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxRequestBytes = 4096;
constexpr milliseconds kReadTimeout(2000), kStallTimeout(2000), kWriteTimeout(30'000), kLinger(100);

}  // namespace

// Time that is left of what there was at the start.
class HttpExchange::Deadline {
 public:
  explicit Deadline(milliseconds time) : end_(std::chrono::steady_clock::now() + time) {}
  int LeftMs() const {
    const auto left = std::chrono::ceil<milliseconds>(end_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

 private:
  const std::chrono::steady_clock::time_point end_;
};

namespace {

bool MayGoOn() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

HttpRequest ParseRequest(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text.substr(0, text.find("\r\n")), ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.") || !absl::StartsWith(words[1], "/")) return {};
  return {.method = std::string(words[0]), .path = std::string(words[1].substr(0, words[1].find('?')))};
}

}  // namespace

bool HttpExchange::PollFor(short events, int time_ms) const {
  pollfd polled[] = {{fd_, events, 0}, {stop_fd_, POLLIN, 0}};
  const int ready = poll(polled, 2, time_ms);
  if (ready < 0) return errno == EINTR;
  return ready > 0 && polled[1].revents == 0;
}

std::optional<HttpRequest> HttpExchange::Read() {
  const Deadline deadline(kReadTimeout);
  std::string text;
  char bytes[kMaxRequestBytes];
  while (!absl::StrContains(text, "\r\n\r\n")) {
    const ssize_t got = recv(fd_, bytes, kMaxRequestBytes - text.size(), 0);
    if (got > 0) {
      text.append(bytes, static_cast<size_t>(got));
      continue;
    }
    // Nothing is left to read into once it is too long.
    if (got == 0 || !MayGoOn() || !PollFor(POLLIN, deadline.LeftMs()) || deadline.LeftMs() == 0) return std::nullopt;
  }
  return ParseRequest(text);
}

bool HttpExchange::Send(absl::string_view text, const Deadline& deadline, bool more) const {
  while (!text.empty()) {
    const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (sent >= 0) {
      text.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    // Asked to stop, it still has this time: who has asked gets an answer.
    if (!MayGoOn()) return false;
    pollfd polled = {fd_, POLLOUT, 0};
    const int ready = poll(&polled, 1, std::min<int>(deadline.LeftMs(), kStallTimeout.count()));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
  return true;
}

void HttpExchange::Answer(const HttpReply& answer, bool with_body) {
  const std::string head =
      absl::StrCat("HTTP/1.1 ", answer.code, " ", answer.reason, "\r\nContent-Type: ", answer.type,
                   "\r\nContent-Length: ", answer.body.size(), "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
  const bool body_follows = with_body && !answer.body.empty();
  const Deadline deadline(kWriteTimeout);
  // Apart: together they would be a second copy of what may be a megabyte.
  if (!Send(head, deadline, body_follows) || (body_follows && !Send(answer.body, deadline, false))) return;
  // What was not read yet would have the answer thrown away when the connection is closed.
  shutdown(fd_, SHUT_WR);
  const Deadline linger(kLinger);
  char bytes[kMaxRequestBytes];
  while (true) {
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got == 0 || (got < 0 && (!MayGoOn() || !PollFor(POLLIN, linger.LeftMs()))) || linger.LeftMs() == 0) return;
  }
}

}  // namespace fusionllm::daemon
