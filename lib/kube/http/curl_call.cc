#include "lib/kube/http/curl_call.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/certificate_clock.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxHeaderBytes = 64 << 10;
// The least that libcurl takes. Each handle that has sent a request over TLS keeps one, watches for as long as they are open.
constexpr long kUploadBufferBytes = 16 << 10;
// What is read at once of a stream, whose handle keeps so much for as long as it is open. By libcurl's default of 16 KiB the 37 watches of
// an operator with eight members take 0.6 MB to wait.
constexpr long kStreamBufferBytes = 4 << 10;
// libcurl 7.88 (Debian 12) leaves what it has read of an HTTP/2 answer beyond 16 KiB lying, and no poll wakes up for it: an answer of 18 kB
// took until its deadline.
constexpr absl::Duration kHttp2Wait = absl::Milliseconds(20);

absl::Duration Now() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

curl_blob Blob(const std::string& bytes) {
  // Not copied: the material outlives the handle.
  return {const_cast<char*>(bytes.data()), bytes.size(), CURL_BLOB_NOCOPY};
}

bool HoldsLineBreak(absl::string_view text) { return text.find_first_of(absl::string_view("\r\n\0", 3)) != absl::string_view::npos; }

}  // namespace

std::unique_ptr<CurlHandle> CurlHandle::Make(std::shared_ptr<const TlsMaterial> material) {
  CURL* const easy = curl_easy_init();
  CURLM* const multi = curl_multi_init();
  if (easy == nullptr || multi == nullptr) {
    if (easy != nullptr) curl_easy_cleanup(easy);
    if (multi != nullptr) curl_multi_cleanup(multi);
    return nullptr;
  }
  return std::unique_ptr<CurlHandle>(new CurlHandle(easy, multi, std::move(material)));
}

CurlHandle::~CurlHandle() {
  curl_easy_cleanup(easy_);
  curl_multi_cleanup(multi_);
}

CurlCall::CurlCall(CurlHandle& handle, const CurlTransportOptions& options, const ServerUrl& server, const HttpRequest& request,
                   const CallLimits& limits, StreamSink* sink)
    : handle_(handle), options_(options), server_(server), request_(request), limits_(limits), sink_(sink) {}

CurlCall::~CurlCall() {
  curl_easy_reset(handle_.easy());
  curl_slist_free_all(headers_);
  curl_slist_free_all(connect_to_);
}

absl::StatusOr<HttpResponse> CurlCall::Run(const std::stop_token& stop) {
  start_ = last_data_ = Now();
  FUSIONLLM_RETURN_IF_ERROR(SetUp());
  if (curl_multi_add_handle(handle_.multi(), handle_.easy()) != CURLM_OK) return absl::InternalError("libcurl refuses a transfer");
  const absl::StatusOr<CURLcode> code = Turn(stop);
  curl_multi_remove_handle(handle_.multi(), handle_.easy());
  if (!code.ok()) return code.status();
  if (*code != CURLE_OK) return ErrorOf(*code);
  // A stream without a single byte of body opens here.
  if (!failure_.ok()) return failure_;
  if (sink_ != nullptr && !opened_ && response_.code / 100 == 2) FUSIONLLM_RETURN_IF_ERROR(Open());
  return std::move(response_);
}

absl::StatusOr<CURLcode> CurlCall::Turn(const std::stop_token& stop) {
  CURLM* const multi = handle_.multi();
  const std::stop_callback wake(stop, [multi] { curl_multi_wakeup(multi); });
  while (true) {
    int running = 0;
    if (const CURLMcode code = curl_multi_perform(multi, &running); code != CURLM_OK) {
      return absl::InternalError(absl::StrCat("libcurl: ", curl_multi_strerror(code)));
    }
    if (!failure_.ok()) return failure_;
    int left = 0;
    while (const CURLMsg* const message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) return message->data.result;
    }
    if (stop.stop_requested()) return absl::CancelledError("the call was stopped");
    const absl::Duration now = Now();
    FUSIONLLM_RETURN_IF_ERROR(CheckDeadlines(now));
    const absl::Duration most = options_.http2 ? kHttp2Wait : absl::Seconds(60);
    const absl::Duration wait = std::clamp(NextDeadline() - now, absl::Milliseconds(1), most);
    curl_multi_poll(multi, nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(wait)), nullptr);
  }
}

bool CurlCall::InHandshake() const {
  if (handshake_start_ == absl::ZeroDuration() || headers_done_) return false;
  curl_off_t secured = 0;
  curl_easy_getinfo(handle_.easy(), CURLINFO_APPCONNECT_TIME_T, &secured);
  return secured == 0;
}

absl::Status CurlCall::CheckDeadlines(absl::Duration now) const {
  if (now - start_ >= limits_.total_timeout) {
    return absl::DeadlineExceededError(absl::StrCat(Where(), ": no complete answer within ", absl::FormatDuration(limits_.total_timeout)));
  }
  if (!headers_done_ && now - start_ >= limits_.header_timeout) {
    return absl::DeadlineExceededError(
        absl::StrCat(Where(), ": the server did not begin to answer within ", absl::FormatDuration(limits_.header_timeout)));
  }
  if (headers_done_ && now - headers_at_ >= limits_.body_timeout) {
    return absl::DeadlineExceededError(
        absl::StrCat(Where(), ": the answer did not end within ", absl::FormatDuration(limits_.body_timeout)));
  }
  if (headers_done_ && now - last_data_ >= idle_timeout_) {
    return absl::DeadlineExceededError(absl::StrCat(Where(), ": silent for ", absl::FormatDuration(idle_timeout_)));
  }
  if (InHandshake() && now - handshake_start_ >= options_.tls_timeout) {
    return absl::DeadlineExceededError(
        absl::StrCat(Where(), ": the TLS handshake was not over within ", absl::FormatDuration(options_.tls_timeout)));
  }
  return absl::OkStatus();
}

absl::Duration CurlCall::NextDeadline() const {
  absl::Duration next = start_ + limits_.total_timeout;
  if (!headers_done_) next = std::min(next, start_ + limits_.header_timeout);
  if (headers_done_) next = std::min({next, headers_at_ + limits_.body_timeout, last_data_ + idle_timeout_});
  if (InHandshake()) next = std::min(next, handshake_start_ + options_.tls_timeout);
  return next;
}

std::string CurlCall::Where() const {
  const absl::string_view path = absl::string_view(request_.target).substr(0, request_.target.find('?'));
  return absl::StrCat(request_.method, " ", server_.scheme, "://", server_.authority, server_.base_path, path);
}

absl::Status CurlCall::ErrorOf(CURLcode code) const {
  const std::string text = absl::StrCat(Where(), ": ", base::WithClock(error_text_[0] != '\0' ? error_text_ : curl_easy_strerror(code)));
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return absl::DeadlineExceededError(text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CIPHER:
      return absl::FailedPreconditionError(text);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return absl::InvalidArgumentError(text);
    case CURLE_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(text);
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_FAILED_INIT:
      return absl::InternalError(text);
    default:  // no name, no connection, reset, cut short
      return absl::UnavailableError(text);
  }
}

absl::Status CurlCall::SetUp() {
  if (request_.body.size() > kMaxRequestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(), ": the request has ", request_.body.size(), " bytes; the server takes at most ", kMaxRequestBytes));
  }
  if (!absl::StartsWith(request_.target, "/") || HoldsLineBreak(request_.target) || absl::StrContains(request_.target, " ")) {
    return absl::InvalidArgumentError(absl::StrCat(request_.method, ": the path cannot be sent as it is"));
  }
  CURL* const easy = handle_.easy();
  // To verify another name than the address has, the URL holds that name and the connection goes elsewhere.
  const std::string host = options_.tls_server_name.empty() ? server_.host : options_.tls_server_name;
  const std::string url = absl::StrCat(server_.scheme, "://", host, ":", server_.port, server_.base_path, request_.target);
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  if (host != server_.host) {
    connect_to_ = curl_slist_append(nullptr, absl::StrCat(host, ":", server_.port, ":", server_.HostPort()).c_str());
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, connect_to_);
  }
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                   static_cast<long>(options_.http2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE : CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, kUploadBufferBytes);
  if (sink_ != nullptr && !options_.http2) curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kStreamBufferBytes);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's "200 Connection established" is not the server's answer
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error_text_);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(options_.connect_timeout)));
  if (!options_.proxy_url.empty()) {
    curl_easy_setopt(easy, CURLOPT_PROXY, options_.proxy_url.c_str());
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "");  // $NO_PROXY is about the environment's proxy
  }
  curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, limits_.compressed ? "gzip" : nullptr);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &CurlCall::OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &CurlCall::OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, &CurlCall::OnSocket);
  curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, this);
  SetUpTls();
  SetUpBody();
  return SetUpHeaders();
}

void CurlCall::SetUpTls() {
  CURL* const easy = handle_.easy();
  const TlsMaterial& tls = *handle_.material();
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, options_.insecure ? 0L : 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, options_.insecure ? 0L : 2L);
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, &CurlCall::OnTls);
  curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, this);
  if (!tls.ca_pem.empty()) {
    curl_blob ca = Blob(tls.ca_pem);
    curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &ca);
    // Else the machine's own authorities would be trusted as well.
    curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
  }
  if (!tls.certificate_pem.empty()) {
    curl_blob certificate = Blob(tls.certificate_pem);
    curl_blob key = Blob(tls.key_pem);
    curl_easy_setopt(easy, CURLOPT_SSLCERTTYPE, "PEM");
    curl_easy_setopt(easy, CURLOPT_SSLKEYTYPE, "PEM");
    curl_easy_setopt(easy, CURLOPT_SSLCERT_BLOB, &certificate);
    curl_easy_setopt(easy, CURLOPT_SSLKEY_BLOB, &key);
  }
}

void CurlCall::SetUpBody() {
  CURL* const easy = handle_.easy();
  if (request_.method == "GET" && request_.body.empty()) {
    curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    return;
  }
  // By a read function that cannot rewind: so libcurl does not send a request again by itself when a kept-alive connection breaks after
  // the body was sent.
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
  curl_easy_setopt(easy, CURLOPT_READFUNCTION, &CurlCall::OnRead);
  curl_easy_setopt(easy, CURLOPT_READDATA, this);
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
}

absl::Status CurlCall::SetUpHeaders() {
  const auto append = [this](const std::string& line) {
    curl_slist* const longer = curl_slist_append(headers_, line.c_str());
    if (longer != nullptr) headers_ = longer;
  };
  for (const HttpHeader& header : request_.headers) {
    if (header.name.empty() || HoldsLineBreak(header.name) || HoldsLineBreak(header.value)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(), ": the header ", header.name, " cannot be sent as it is"));
    }
    append(absl::StrCat(header.name, ": ", header.value));
  }
  append("Expect:");  // no round trip before each body
  if (!options_.tls_server_name.empty()) append(absl::StrCat("Host: ", server_.authority));
  curl_easy_setopt(handle_.easy(), CURLOPT_HTTPHEADER, headers_);
  return absl::OkStatus();
}

absl::Status CurlCall::TakeHeader(absl::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes)
    return absl::ResourceExhaustedError(absl::StrCat(Where(), ": the headers of the answer are too long"));
  if (absl::StartsWith(line, "HTTP/")) {
    // Again after "100 Continue" and after the answer of a proxy.
    response_.headers.clear();
    headers_done_ = false;
    return absl::OkStatus();
  }
  if (absl::StripAsciiWhitespace(line).empty()) {
    long code = 0;
    curl_easy_getinfo(handle_.easy(), CURLINFO_RESPONSE_CODE, &code);
    response_.code = static_cast<int>(code);
    if (code < 200) return absl::OkStatus();
    headers_done_ = true;
    headers_at_ = last_data_ = Now();
    return absl::OkStatus();
  }
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return absl::OkStatus();
  response_.headers.push_back({std::string(line.substr(0, colon)), std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)))});
  return absl::OkStatus();
}

absl::Status CurlCall::Open() {
  opened_ = true;
  FUSIONLLM_RETURN_IF_ERROR(sink_->OnOpen(response_));
  idle_timeout_ = sink_->IdleTimeout();
  return absl::OkStatus();
}

absl::Status CurlCall::TakeBody(absl::string_view chunk) {
  last_data_ = Now();
  if (sink_ != nullptr && response_.code / 100 == 2) {
    FUSIONLLM_RETURN_IF_ERROR(sink_->OnData(chunk));
    idle_timeout_ = sink_->IdleTimeout();
    return absl::OkStatus();
  }
  if (chunk.size() > limits_.max_body_bytes - response_.body.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(Where(), ": the answer has more than ", limits_.max_body_bytes, " bytes"));
  }
  response_.body.append(chunk.data(), chunk.size());
  return absl::OkStatus();
}

size_t CurlCall::OnHeader(char* data, size_t size, size_t count, void* self) {
  auto& call = *static_cast<CurlCall*>(self);
  call.failure_ = call.TakeHeader(absl::string_view(data, size * count));
  // The sink hears of the answer at once: the first event may be an hour away.
  const bool to_sink = call.sink_ != nullptr && call.headers_done_ && !call.opened_ && call.response_.code / 100 == 2;
  if (call.failure_.ok() && to_sink) call.failure_ = call.Open();
  return call.failure_.ok() ? size * count : 0;
}

size_t CurlCall::OnBody(char* data, size_t size, size_t count, void* self) {
  auto& call = *static_cast<CurlCall*>(self);
  call.failure_ = call.TakeBody(absl::string_view(data, size * count));
  return call.failure_.ok() ? size * count : CURL_WRITEFUNC_ERROR;
}

size_t CurlCall::OnRead(char* buffer, size_t size, size_t count, void* self) {
  auto& call = *static_cast<CurlCall*>(self);
  const size_t bytes = std::min(size * count, call.request_.body.size() - call.body_sent_);
  std::memcpy(buffer, call.request_.body.data() + call.body_sent_, bytes);
  call.body_sent_ += bytes;
  return bytes;
}

CURLcode CurlCall::OnTls(CURL*, void*, void* self) {
  // Called when TCP is connected: libcurl itself tells that only when TLS is too.
  static_cast<CurlCall*>(self)->handshake_start_ = Now();
  return CURLE_OK;
}

int CurlCall::OnSocket(void*, curl_socket_t socket, curlsocktype) {
  const auto set = [socket](int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof(value)); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  return CURL_SOCKOPT_OK;
}

}  // namespace fusionllm::kube
