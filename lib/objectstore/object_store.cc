#include "lib/objectstore/object_store.h"

#include <algorithm>
#include <condition_variable>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "lib/base/certificate_clock.h"
#include "lib/base/mutex.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/hashed_file.h"

namespace fusionllm::objectstore {
namespace {

constexpr size_t kPageObjects = 1000;  // the most that a server lists at once
constexpr int kMaxPages = 100'000;
constexpr int kRangeNotSatisfiable = 416;

bool IsServersTrouble(int status, absl::string_view code) {
  return status >= 500 || status == 429 || status == 408 || code == "SlowDown" || code == "RequestTimeout" || code == "InternalError";
}

// Some servers write the quotes that belong to an ETag in one answer and not in another.
std::string Unquoted(absl::string_view etag) { return absl::StrReplaceAll(etag, {{"\"", ""}}); }

Request RequestFor(absl::string_view method, const base::ObjectUri& uri) {
  Request request;
  request.method = std::string(method);
  request.bucket = uri.bucket;
  request.key = uri.key;
  return request;
}

}  // namespace

ObjectStore::ObjectStore(StoreSettings settings, StoreOptions options)
    : exchange_(std::move(settings), options.limits), options_(std::move(options)) {}

absl::Status ObjectStore::Explain(const Request& request, const absl::Status& error) const {
  const std::string uri = base::ToString(base::ObjectUri{.bucket = request.bucket, .key = request.key});
  return absl::Status(error.code(), absl::StrCat(request.method, " ", uri, " at ", endpoint(), ": ", error.message()));
}

absl::Status ObjectStore::ErrorOf(const Request& request, const Response& response) const {
  const ServerError error = ParseError(response.body);
  std::string text = absl::StrCat("HTTP ", response.status);
  if (!error.code.empty()) absl::StrAppend(&text, " ", error.code);
  if (!error.message.empty()) absl::StrAppend(&text, ": ", error.message);
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  // An upload that is completed may fail behind a 200.
  if (IsServersTrouble(response.status, error.code)) {
    code = absl::StatusCode::kUnavailable;
  } else if (response.status == 404) {
    code = absl::StatusCode::kNotFound;
  } else if (response.status == 401 || response.status == 403) {
    code = absl::StatusCode::kPermissionDenied;
    if (error.code == "RequestTimeTooSkewed") absl::StrAppend(&text, "; ", base::ClockReading(absl::Now()));
  } else if (response.status == 412) {
    code = absl::StatusCode::kFailedPrecondition;
    absl::StrAppend(&text, "; it has changed since it was looked at");
  } else if (error.code == "BadDigest" || error.code == "XAmzContentSHA256Mismatch") {
    code = absl::StatusCode::kDataLoss;
  } else if (response.status / 100 == 3) {
    absl::StrAppend(&text, "; AWS_REGION (", exchange_.settings().region, ") or the endpoint may be another's");
  }
  return Explain(request, absl::Status(code, text));
}

absl::StatusOr<Response> ObjectStore::Try(const Request& request, bool allow_empty_range) {
  absl::StatusOr<Response> response = exchange_.Send(request, options_.progress, options_.stop);
  if (!response.ok()) return Explain(request, response.status());
  const bool error_inside = response->status / 100 == 2 && !ParseError(response->body).code.empty();
  if (response->status == kRangeNotSatisfiable && allow_empty_range) return response;
  if (response->status / 100 != 2 || error_inside) return ErrorOf(request, *response);
  return response;
}

absl::Status ObjectStore::PauseAfter(const absl::Status& failure, int attempt) {
  if (!absl::IsUnavailable(failure)) return failure;
  if (attempt >= options_.retry_policy.attempts) {
    return absl::UnavailableError(absl::StrCat(failure.message(), attempt > 1 ? absl::StrCat(" (tried ", attempt, " times)") : ""));
  }
  if (retries_.ShouldReport(absl::Now()) && options_.retried) {
    const absl::Duration elapsed = absl::Trunc(retries_.Elapsed(), absl::Seconds(1));
    options_.retried(absl::StrCat(failure.message(), "; it is tried again",
                                  elapsed > absl::ZeroDuration() ? absl::StrCat(", for ", absl::FormatDuration(elapsed), " so far") : ""));
  }
  absl::Duration pause = options_.retry_policy.initial_backoff;
  for (int i = 1; i < attempt && pause < options_.retry_policy.max_backoff; ++i) pause *= 2;
  base::Mutex mutex;  // guards nothing; the wait needs one
  base::UniqueLock lock(mutex);
  std::condition_variable_any wakeup;
  wakeup.wait_for(lock, options_.stop, absl::ToChronoNanoseconds(std::min(pause, options_.retry_policy.max_backoff)), [] { return false; });
  if (!options_.stop.stop_requested()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(failure.message(), "; stopped before it was tried again"));
}

absl::StatusOr<Response> ObjectStore::Send(const Request& request, bool allow_empty_range) {
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<Response> response = Try(request, allow_empty_range);
    if (response.ok()) return response;
    FUSIONLLM_RETURN_IF_ERROR(PauseAfter(response.status(), attempt));
  }
}

absl::StatusOr<std::vector<ObjectInfo>> ObjectStore::List(const std::string& bucket, const std::string& prefix, size_t max_objects) {
  std::vector<ObjectInfo> objects;
  Request request;
  request.bucket = bucket;
  std::string token;
  for (int page = 0; page < kMaxPages; ++page) {
    request.query = {{"encoding-type", "url"}, {"list-type", "2"}, {"prefix", prefix}};
    request.query["max-keys"] = absl::StrCat(std::min(kPageObjects, max_objects - objects.size()));
    if (!token.empty()) request.query["continuation-token"] = token;
    FUSIONLLM_ASSIGN_OR_RETURN(const Response response, Send(request));
    absl::StatusOr<Listing> listing = ParseListing(response.body);
    if (!listing.ok()) return Explain(request, listing.status());
    for (ObjectInfo& object : listing->objects) {
      if (absl::StartsWith(object.key, prefix)) objects.push_back(std::move(object));
    }
    if (objects.size() >= max_objects || listing->next.empty()) {
      objects.resize(std::min(objects.size(), max_objects));
      return objects;
    }
    if (listing->next == token) break;
    token = listing->next;
  }
  return Explain(request, absl::InvalidArgumentError("the listing has no end"));
}

absl::StatusOr<ObjectInfo> ObjectStore::Stat(const base::ObjectUri& uri) {
  Request request = RequestFor("GET", uri);
  request.headers.push_back({"range", "bytes=0-0"});
  request.sink = [](std::span<const std::byte>) { return absl::OkStatus(); };  // a server that knows no ranges sends all of it
  ObjectInfo info{.key = uri.key};
  absl::StatusOr<Response> response = Send(request, /*allow_empty_range=*/true);
  FUSIONLLM_RETURN_IF_ERROR(response.status());
  if (response->status == kRangeNotSatisfiable) return info;  // of an empty object there is no first byte
  const std::string range = response->headers["content-range"];
  const absl::string_view bytes =
      absl::StrContains(range, '/') ? absl::string_view(range).substr(range.find('/') + 1) : response->headers["content-length"];
  if (!absl::SimpleAtoi(bytes, &info.bytes) || info.bytes < 0) {
    return Explain(request, absl::InvalidArgumentError("the answer does not say how long the object is"));
  }
  info.etag = response->headers["etag"];
  return info;
}

absl::StatusOr<std::string> ObjectStore::Read(const base::ObjectUri& uri, int64_t bytes_max) {
  Request request = RequestFor("GET", uri);
  std::string content;
  request.sink = [&](std::span<const std::byte> bytes) {
    if (static_cast<int64_t>(content.size() + bytes.size()) > bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat("the object has more than ", bytes_max, " bytes"));
    }
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  };
  for (int attempt = 1;; ++attempt) {
    content.clear();
    const absl::Status status = Try(request).status();
    if (status.ok()) return content;
    FUSIONLLM_RETURN_IF_ERROR(PauseAfter(status, attempt));
  }
}

absl::StatusOr<std::string> ObjectStore::ReadRange(const base::ObjectUri& uri, int64_t offset, int64_t bytes, const std::string& etag) {
  Request request = RequestFor("GET", uri);
  request.headers.push_back({"range", absl::StrCat("bytes=", offset, "-", offset + bytes - 1)});
  if (!etag.empty()) request.headers.push_back({"if-match", etag});
  request.resume_offset = offset;
  std::string content;
  request.sink = [&](std::span<const std::byte> piece) {
    const size_t more = std::min(piece.size(), static_cast<size_t>(bytes) - content.size());
    content.append(reinterpret_cast<const char*>(piece.data()), more);
    // A server that knows no ranges goes on to the end.
    return more == piece.size() ? absl::OkStatus() : absl::OutOfRangeError("enough");
  };
  for (int attempt = 1;; ++attempt) {
    content.clear();
    const absl::Status status = Try(request).status();
    if (static_cast<int64_t>(content.size()) == bytes) return content;
    if (status.ok()) return Explain(request, absl::DataLossError(absl::StrCat("only ", content.size(), " of ", bytes, " bytes came")));
    FUSIONLLM_RETURN_IF_ERROR(PauseAfter(status, attempt));
  }
}

absl::StatusOr<checkpoint::WrittenFile> ObjectStore::Fetch(const base::ObjectUri& uri, int64_t bytes, const std::string& etag,
                                                           const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(checkpoint::HashedFile file, checkpoint::HashedFile::Create(path));
  int64_t got = 0;
  Request request = RequestFor("GET", uri);
  request.sink = [&](std::span<const std::byte> piece) {
    if (static_cast<int64_t>(piece.size()) > bytes - got) {
      return absl::DataLossError(absl::StrCat("the object has more than ", bytes, " bytes"));
    }
    FUSIONLLM_RETURN_IF_ERROR(file.Write(piece));
    got += static_cast<int64_t>(piece.size());
    return absl::OkStatus();
  };
  for (int attempt = 1;; ++attempt) {
    const int64_t before = got;
    request.headers.clear();
    if (!etag.empty()) request.headers.push_back({"if-match", etag});
    if (got > 0) request.headers.push_back({"range", absl::StrCat("bytes=", got, "-")});
    request.resume_offset = got;
    absl::StatusOr<Response> response = Try(request);
    absl::Status status = response.status();
    if (response.ok() && before > 0 && response->status != 206 && (etag.empty() || Unquoted(response->headers["etag"]) != Unquoted(etag))) {
      return Explain(request, absl::DataLossError("the server starts from the beginning where the rest of an object was asked for, and "
                                                  "does not say that it is the same object"));
    }
    if (status.ok() && got < bytes)
      status = Explain(request, absl::UnavailableError(absl::StrCat("only ", got, " of ", bytes, " bytes came")));
    if (status.ok()) break;
    if (got > before) attempt = 1;  // it moves on
    FUSIONLLM_RETURN_IF_ERROR(PauseAfter(status, attempt));
  }
  return file.Finish();
}

absl::Status ObjectStore::Write(const base::ObjectUri& uri, const std::string& content) {
  Request request = RequestFor("PUT", uri);
  request.body_bytes = static_cast<int64_t>(content.size());
  request.body_sha256 = Sha256Hex(content);
  request.body = [&](int64_t offset, std::span<std::byte> into) {
    std::copy_n(std::as_bytes(std::span(content)).begin() + offset, into.size(), into.begin());
    return absl::OkStatus();
  };
  return Send(request).status();
}

absl::Status ObjectStore::Upload(const std::string& path, const std::string& sha256, const base::ObjectUri& uri) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SourceFile file, base::SourceFile::Open(path, /*keep_open=*/true));
  if (file.size() > options_.part_bytes) return UploadInParts(path, sha256, uri, file.size());
  Request request = RequestFor("PUT", uri);
  request.body_bytes = file.size();
  request.body_sha256 = sha256;
  request.body = [&](int64_t offset, std::span<std::byte> into) { return file.ReadAt(offset, into); };
  return Send(request).status();
}

absl::Status ObjectStore::Remove(const base::ObjectUri& uri) {
  const absl::Status status = Send(RequestFor("DELETE", uri)).status();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace fusionllm::objectstore
