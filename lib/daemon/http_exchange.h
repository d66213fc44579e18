// One HTTP/1.1 request over a connection, answered and closed: all of HTTP that monitoring takes. Blocks; never raises SIGPIPE.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::daemon {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query; empty: no request line that is understood
};

struct HttpReply {
  int code = 200;
  absl::string_view reason = "OK";
  absl::string_view type = "text/plain; charset=utf-8";
  std::string body = {};
};

// The connection `fd` must not block by itself. Once `stop_fd` is readable, requests that have not come whole are dropped.
class HttpExchange {
 public:
  HttpExchange(int fd, int stop_fd) : fd_(fd), stop_fd_(stop_fd) {}

  // Up to the empty line, within 2 s and 4 KiB; nothing: it has not come so. A body is not read.
  std::optional<HttpRequest> Read();
  // `with_body` false: its length alone, as HEAD is answered. A peer that takes nothing for 2 s, or not all within 30 s, gets no more.
  // Returns when the peer has closed, at most 100 ms after the end.
  void Answer(const HttpReply& answer, bool with_body);

 private:
  class Deadline;
  // `more`: something follows at once. False: the peer takes nothing any more.
  bool Send(absl::string_view text, const Deadline& deadline, bool more) const;
  // False: not within `time_ms`, or asked to stop.
  bool PollFor(short events, int time_ms) const;

  const int fd_, stop_fd_;
};

}  // namespace fusionllm::daemon
