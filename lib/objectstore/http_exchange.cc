#include "lib/objectstore/http_exchange.h"

#include <curl/curl.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/certificate_clock.h"
#include "lib/checkpoint/hashed_file.h"

namespace fusionllm::objectstore {
namespace {

constexpr size_t kMaxCollectedBytes = 32 << 20;
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr long kBufferBytes = 256 << 10;

// As Signature Version 4 has it: all but letters, digits and "-._~" is escaped, in capitals.
std::string Escape(absl::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || absl::StrContains("-._~", absl::string_view(&c, 1)) || (keep_slashes && c == '/')) {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "%", absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(&c, 1))));
    }
  }
  return out;
}

}  // namespace

std::string Sha256Hex(absl::string_view text) {
  checkpoint::Sha256 hash;
  hash.Update(std::as_bytes(std::span(text.data(), text.size())));
  return hash.HexDigest();
}

// One transfer: what libcurl's callbacks see.
class HttpExchange::Call {
 public:
  Call(CURL* easy, const Request& request, const Progress& progress, const std::stop_token& stop)
      : easy_(easy), request_(request), progress_(progress), stop_(stop) {}
  ~Call() { curl_slist_free_all(headers_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  absl::StatusOr<Response> Run(const StoreSettings& settings, const ExchangeLimits& limits);

 private:
  void SetUp(const StoreSettings& settings, const ExchangeLimits& limits);
  void AddHeader(const std::string& line) {
    if (curl_slist* const longer = curl_slist_append(headers_, line.c_str()); longer != nullptr) headers_ = longer;
  }

  static size_t OnHeader(char* data, size_t size, size_t count, void* self);
  static size_t OnBody(char* data, size_t size, size_t count, void* self);
  static size_t OnRead(char* buffer, size_t size, size_t count, void* self);
  static int OnSeek(void* self, curl_off_t offset, int origin);
  static int OnProgress(void* self, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up);
  absl::Status Take(std::span<const std::byte> bytes);

  CURL* const easy_;
  const Request& request_;
  const Progress& progress_;
  const std::stop_token& stop_;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
  Response response_;
  absl::Status failure_;  // what a callback found
  int64_t read_ = 0;      // of the request's body
  int64_t passed_ = 0;    // of Request::have
  size_t header_bytes_ = 0;
  curl_off_t reported_ = 0;
};

size_t HttpExchange::Call::OnHeader(char* data, size_t size, size_t count, void* self) {
  Call& call = *static_cast<Call*>(self);
  const absl::string_view line(data, size * count);
  call.header_bytes_ += line.size();
  if (call.header_bytes_ > kMaxHeaderBytes) {
    call.failure_ = absl::InvalidArgumentError("the headers of the answer are too long");
    return 0;
  }
  if (absl::StartsWith(line, "HTTP/")) call.response_.headers.clear();  // again after "100 Continue"
  const size_t colon = line.find(':');
  if (colon != absl::string_view::npos) {
    call.response_.headers[absl::AsciiStrToLower(line.substr(0, colon))] = std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return line.size();
}

absl::Status HttpExchange::Call::Take(std::span<const std::byte> bytes) {
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  const bool good = status / 100 == 2;
  if (good && request_.sink) {
    if (status == 200) {
      const size_t known = std::min(bytes.size(), static_cast<size_t>(request_.resume_offset - passed_));
      passed_ += static_cast<int64_t>(known);
      bytes = bytes.subspan(known);
    }
    return bytes.empty() ? absl::OkStatus() : request_.sink(bytes);
  }
  const size_t max_bytes = good ? kMaxCollectedBytes : kMaxErrorBytes;
  if (response_.body.size() + bytes.size() > max_bytes) {
    if (!good) return absl::OkStatus();  // enough of it to tell what is wrong
    return absl::InvalidArgumentError(absl::StrCat("the answer has more than ", max_bytes, " bytes"));
  }
  response_.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::OkStatus();
}

size_t HttpExchange::Call::OnBody(char* data, size_t size, size_t count, void* self) {
  Call& call = *static_cast<Call*>(self);
  call.failure_ = call.Take(std::as_bytes(std::span(data, size * count)));
  return call.failure_.ok() ? size * count : CURL_WRITEFUNC_ERROR;
}

size_t HttpExchange::Call::OnRead(char* buffer, size_t size, size_t count, void* self) {
  Call& call = *static_cast<Call*>(self);
  const auto bytes = std::min(static_cast<int64_t>(size * count), call.request_.body_bytes - call.read_);
  if (bytes == 0) return 0;
  call.failure_ = call.request_.body(call.read_, std::as_writable_bytes(std::span(buffer, static_cast<size_t>(bytes))));
  if (!call.failure_.ok()) return CURL_READFUNC_ABORT;
  call.read_ += bytes;
  return static_cast<size_t>(bytes);
}

// A connection that was kept open and is gone is tried again by libcurl, from the begin of the body: requests of S3 may be repeated.
int HttpExchange::Call::OnSeek(void* self, curl_off_t offset, int origin) {
  Call& call = *static_cast<Call*>(self);
  if (origin != SEEK_SET || offset < 0 || offset > call.request_.body_bytes) return CURL_SEEKFUNC_FAIL;
  call.read_ = offset;
  return CURL_SEEKFUNC_OK;
}

int HttpExchange::Call::OnProgress(void* self, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up) {
  Call& call = *static_cast<Call*>(self);
  if (call.progress_ && down + up > call.reported_) call.progress_(down + up - call.reported_);
  call.reported_ = std::max(call.reported_, down + up);
  return call.stop_.stop_requested() ? 1 : 0;
}

void HttpExchange::Call::SetUp(const StoreSettings& settings, const ExchangeLimits& limits) {
  curl_easy_reset(easy_);
  curl_easy_setopt(easy_, CURLOPT_URL, absl::StrCat(settings.endpoint, Target(request_)).c_str());
  curl_easy_setopt(easy_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_FOLLOWLOCATION, 0L);  // credentials are for the server that was named
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, error_);
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT, limits.connect_seconds);
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy_, CURLOPT_LOW_SPEED_TIME, limits.stall_seconds);
  curl_easy_setopt(easy_, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy_, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  if (!settings.ca_file.empty()) curl_easy_setopt(easy_, CURLOPT_CAINFO, settings.ca_file.c_str());
  curl_easy_setopt(easy_, CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", settings.region, ":s3").c_str());
  curl_easy_setopt(easy_, CURLOPT_USERNAME, settings.access_key_id.c_str());
  curl_easy_setopt(easy_, CURLOPT_PASSWORD, settings.secret_access_key.c_str());
  AddHeader(absl::StrCat("x-amz-content-sha256: ", request_.body ? request_.body_sha256 : Sha256Hex(absl::string_view())));
  if (!settings.session_token.empty()) AddHeader(absl::StrCat("x-amz-security-token: ", settings.session_token));
  if (request_.method == "PUT" || request_.method == "POST") AddHeader("content-type: application/octet-stream");
  for (const auto& [name, value] : request_.headers) AddHeader(absl::StrCat(name, ": ", value));
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, &Call::OnHeader);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &Call::OnBody);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy_, CURLOPT_XFERINFOFUNCTION, &Call::OnProgress);
  curl_easy_setopt(easy_, CURLOPT_XFERINFODATA, this);
  curl_easy_setopt(easy_, CURLOPT_NOPROGRESS, 0L);
  if (request_.body) {
    // As a POST under another name: libcurl 7.88 asks before each body of a PUT whether it may send it, however short that is.
    curl_easy_setopt(easy_, CURLOPT_POST, 1L);
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body_bytes));
    curl_easy_setopt(easy_, CURLOPT_READFUNCTION, &Call::OnRead);
    curl_easy_setopt(easy_, CURLOPT_READDATA, this);
    curl_easy_setopt(easy_, CURLOPT_SEEKFUNCTION, &Call::OnSeek);
    curl_easy_setopt(easy_, CURLOPT_SEEKDATA, this);
  } else if (request_.method == "HEAD") {
    curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  } else if (request_.method == "POST" || request_.method == "PUT") {
    curl_easy_setopt(easy_, CURLOPT_POST, 1L);
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE, 0L);
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, "");
  } else {
    curl_easy_setopt(easy_, CURLOPT_HTTPGET, 1L);
  }
  if (request_.method != "HEAD") curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
}

absl::StatusOr<Response> HttpExchange::Call::Run(const StoreSettings& settings, const ExchangeLimits& limits) {
  SetUp(settings, limits);
  const CURLcode code = curl_easy_perform(easy_);
  if (!failure_.ok()) return failure_;
  if (stop_.stop_requested()) return absl::CancelledError("the transfer was stopped");
  const std::string text = base::WithClock(error_[0] != '\0' ? error_ : curl_easy_strerror(code));
  switch (code) {
    case CURLE_OK:
      break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return absl::FailedPreconditionError(text);
    case CURLE_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(text);
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_FAILED_INIT:
      return absl::InternalError(text);
    default:  // no name, no connection, broken, silent, cut short
      return absl::UnavailableError(text);
  }
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  response_.status = static_cast<int>(status);
  return std::move(response_);
}

HttpExchange::HttpExchange(StoreSettings settings, ExchangeLimits limits)
    : settings_(std::move(settings)), limits_(limits), easy_(curl_easy_init()) {}

HttpExchange::~HttpExchange() { curl_easy_cleanup(easy_); }

std::string HttpExchange::Target(const Request& request) {
  std::string target = absl::StrCat("/", request.bucket);
  if (!request.key.empty()) absl::StrAppend(&target, "/", Escape(request.key, /*keep_slashes=*/true));
  char separator = '?';
  for (const auto& [name, value] : request.query) {
    absl::StrAppend(&target, absl::string_view(&separator, 1), Escape(name, false), "=", Escape(value, false));
    separator = '&';
  }
  return target;
}

absl::StatusOr<Response> HttpExchange::Send(const Request& request, const Progress& progress, const std::stop_token& stop) {
  if (easy_ == nullptr) return absl::ResourceExhaustedError("libcurl has no memory");
  if (stop.stop_requested()) return absl::CancelledError("the transfer was stopped");
  return Call(static_cast<CURL*>(easy_), request, progress, stop).Run(settings_, limits_);
}

}  // namespace fusionllm::objectstore
