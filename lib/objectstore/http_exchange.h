// One signed request to an S3 server and its answer, by libcurl, which also signs (AWS Signature Version 4).
//
// What libcurl 7.88 signs is what it is given: it neither sorts a query nor escapes a path, and of a header without a value it signs what
// it does not send. So paths and queries are escaped and sorted here, and the body's checksum is always stated, with which the server
// compares what arrives. A later libcurl finds nothing left to do. Not thread-safe; blocks. Connections stay open between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/objectstore/settings.h"

namespace fusionllm::objectstore {

struct Request {
  std::string method = "GET";                // GET, PUT, POST, DELETE, HEAD
  std::string bucket, key;                   // unescaped; an empty key: the bucket itself
  std::map<std::string, std::string> query;  // unescaped, sorted as signing wants it
  std::vector<std::pair<std::string, std::string>> headers;
  // Body of `body_bytes` bytes, read from the given offset on; its SHA-256 in hex. Not set: none.
  std::function<absl::Status(int64_t offset, std::span<std::byte> into)> body;
  int64_t body_bytes = 0;
  std::string body_sha256;
  // Takes the body of an answer with a 2xx status; not set: it is collected in Response::body.
  std::function<absl::Status(std::span<const std::byte>)> sink;
  // So many bytes at the front are there already and were not asked for, by a range: of a server that sends all the same (200) the sink
  // does not get them.
  int64_t resume_offset = 0;
};

struct Response {
  int status = 0;
  std::string body;                            // of an error, or without a sink
  std::map<std::string, std::string> headers;  // names in lower case
};

// Called while bytes flow in either direction, with how many since the last call.
using Progress = std::function<void(int64_t bytes)>;

struct ExchangeLimits {
  long connect_seconds = 15;
  long stall_seconds = 60;  // without a byte in either direction
};

class HttpExchange {
 public:
  explicit HttpExchange(StoreSettings settings, ExchangeLimits limits = {});
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const StoreSettings& settings() const { return settings_; }

  // Whatever the server answered is a Response. Errors: Unavailable (no connection, a connection that broke or stalled, a body that was cut
  // short), FailedPrecondition for a certificate that does not hold, Cancelled by `stop`, or those of body and sink.
  absl::StatusOr<Response> Send(const Request& request, const Progress& progress, const std::stop_token& stop);

  // The path and query of a request as they are sent and signed.
  static std::string Target(const Request& request);

 private:
  class Call;

  const StoreSettings settings_;
  const ExchangeLimits limits_;
  void* const easy_;  // CURL
};

// SHA-256 in hex.
std::string Sha256Hex(absl::string_view text);

}  // namespace fusionllm::objectstore
