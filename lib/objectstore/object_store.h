// Objects of an S3-compatible store: list, read, write, remove.
//
// Every call blocks. What another try may cure (no connection, a stall, a body cut short, 5xx, SlowDown) is tried again after a pause that
// doubles, up to RetryPolicy::attempts in all, and StoreOptions::retried hears of it. Not thread-safe: each thread has its own. Errors name
// the URI, the endpoint, the HTTP status and the server's code and message; of what was tried more than once, the last:
//   NotFound             404
//   PermissionDenied     401, 403
//   InvalidArgument      another 4xx or 3xx, or an answer that is none of S3's
//   DataLoss             what arrived is not what was announced
//   Unavailable          what was tried again, too often
//   FailedPrecondition   the endpoint's certificate does not hold, or the object is another one than when it was listed
//   Cancelled            stopped
//   those of base/output_file.h and base/source_file.h for files here
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/object_uri.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/objectstore/http_exchange.h"
#include "lib/objectstore/retry_report_throttle.h"
#include "lib/objectstore/s3_xml.h"
#include "lib/objectstore/settings.h"

namespace fusionllm::objectstore {

struct RetryPolicy {
  int attempts = 6;
  absl::Duration initial_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
};

struct StoreOptions {
  RetryPolicy retry_policy = {};
  ExchangeLimits limits = {};
  // A file longer than this goes up in parts of at least this length; S3 takes parts from 5 MiB on.
  int64_t part_bytes = int64_t{64} << 20;
  Progress progress;
  std::stop_token stop;
  // That something failed and is tried again, in a sentence with the cause, as often as RetryReportThrottle has it. On the caller's thread;
  // must not block for long. Not set: not called.
  std::function<void(const std::string& sentence)> retried;
};

class ObjectStore {
 public:
  explicit ObjectStore(StoreSettings settings, StoreOptions options = {});

  const std::string& endpoint() const { return exchange_.settings().endpoint; }

  // The objects whose keys begin with `prefix`, as the store sorts them: `max_objects` at the most.
  absl::StatusOr<std::vector<ObjectInfo>> List(const std::string& bucket, const std::string& prefix, size_t max_objects);

  // Length and ETag of one object, whose first byte is fetched: that needs the right to read it and none to list. NotFound: there is none.
  absl::StatusOr<ObjectInfo> Stat(const base::ObjectUri& uri);

  // A small object, whole. InvalidArgument when it is longer than `bytes_max`.
  absl::StatusOr<std::string> Read(const base::ObjectUri& uri, int64_t bytes_max);

  // `bytes` of an object from `offset` on, which it has; `etag`, unless empty: of the object that is meant. DataLoss when fewer come.
  absl::StatusOr<std::string> ReadRange(const base::ObjectUri& uri, int64_t offset, int64_t bytes, const std::string& etag);

  // An object into a file, which is there only when it is whole. A connection that breaks is taken up again where it ended. `etag`, unless
  // empty: of the object that is meant; `bytes`: its length.
  absl::StatusOr<checkpoint::WrittenFile> Fetch(const base::ObjectUri& uri, int64_t bytes, const std::string& etag,
                                                const std::string& path);

  absl::Status Write(const base::ObjectUri& uri, const std::string& content);
  // `sha256`: of the whole file, in hex; the server compares it with what arrives (of a long file, part by part). DataLoss when the file
  // here has another. Appears when it is whole.
  absl::Status Upload(const std::string& path, const std::string& sha256, const base::ObjectUri& uri);

  // OK when there is none.
  absl::Status Remove(const base::ObjectUri& uri);

 private:
  // `allow_empty_range`: 416 for a range is an answer, and no error.
  absl::StatusOr<Response> Send(const Request& request, bool allow_empty_range = false);
  absl::StatusOr<Response> Try(const Request& request, bool allow_empty_range = false);
  // OK, after a pause: try again. Else the request's end.
  absl::Status PauseAfter(const absl::Status& failure, int attempt);
  absl::Status Explain(const Request& request, const absl::Status& error) const;
  absl::Status ErrorOf(const Request& request, const Response& response) const;
  absl::Status UploadInParts(const std::string& path, const std::string& sha256, const base::ObjectUri& uri, int64_t bytes);
  absl::StatusOr<std::vector<std::string>> UploadParts(const std::string& path, const std::string& sha256, const base::ObjectUri& uri,
                                                       int64_t bytes, const std::string& upload);

  HttpExchange exchange_;
  const StoreOptions options_;
  RetryReportThrottle retries_;
};

}  // namespace fusionllm::objectstore
