// HTTP as the Kubernetes client needs it: one answer to one request, or an answer that goes on and on.
//
// A Transport speaks to one API server; how it gets there (TLS, proxy, base path) is settled when it is made. Thread-safe; calls block the
// calling thread until done, or until `stop` is requested, which ends them within a moment whatever the server does. Nothing waits without
// a limit: every call ends by one of its deadlines at the latest.
//
// A status other than 2xx is an answer, not an error. Errors are what kept an answer from coming:
//   Unavailable         no connection, or it broke
//   DeadlineExceeded    a deadline passed; the message says which
//   ResourceExhausted   the answer was longer than allowed
//   FailedPrecondition  TLS: the server cannot be trusted, or does not trust us
//   Cancelled           `stop` was requested
//   InvalidArgument     the request cannot be sent as it is
// After an error the server may or may not have carried the request out.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fusionllm::kube {

// The API server takes no more.
inline constexpr size_t kMaxRequestBytes = 3 << 20;

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method = "GET";
  // Path and query, percent-encoded, below the server's own base path: "/api/v1/pods?limit=5".
  std::string target;
  std::vector<HttpHeader> headers;
  std::string body;
};

struct HttpResponse {
  int code = 0;
  std::vector<HttpHeader> headers;  // trailers, too
  std::string body;                 // decompressed; empty in what a stream begins with

  // The value of the first header of this name in any case; empty if there is none.
  absl::string_view Header(absl::string_view name) const;
};

struct UnaryLimits {
  absl::Duration timeout = absl::Seconds(60);  // from the call to the last byte of the answer
  size_t max_response_bytes = size_t{128} << 20;
};

struct StreamLimits {
  absl::Duration header_timeout = absl::Seconds(60);  // from the call to the status line
  absl::Duration body_timeout = absl::Seconds(605);   // from the status line to the last byte
  size_t max_error_bytes = size_t{1} << 20;           // of the body of an answer other than 2xx, which comes in one piece
  bool compressed = false;                            // the answer may come compressed; not for watches: a compressor holds events back
};

// Takes in a stream. Called on the thread that called Stream(). An error ends the stream and becomes its result.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // The server has answered, with 2xx.
  virtual absl::Status OnOpen(const HttpResponse& head) = 0;
  // More bytes, cut anywhere.
  virtual absl::Status OnData(absl::string_view chunk) = 0;
  // Longest silence from now on after which the stream counts as dead; asked after OnOpen and after each OnData.
  virtual absl::Duration IdleTimeout() const { return absl::InfiniteDuration(); }
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop) = 0;

  // Hands an answer of 2xx to the sink as it comes and returns its head when the server ends it. Another answer is returned whole, and the
  // sink sees nothing of it. On a connection of its own: a stuck stream holds up no other call.
  virtual absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink,
                                              std::stop_token stop) = 0;
};

}  // namespace fusionllm::kube
