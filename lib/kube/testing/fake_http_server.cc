#include "lib/kube/testing/fake_http_server.h"

#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace fusionllm::kube::testing {
namespace {

std::optional<HttpRequest> Read(const std::string& text) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return std::nullopt;
  const std::vector<std::string> lines = absl::StrSplit(text.substr(0, end), "\r\n");
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3) return std::nullopt;
  HttpRequest request = {.method = words[0], .target = words[1], .body = text.substr(end + 4)};
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> header = absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    request.headers.push_back({header.first, std::string(absl::StripAsciiWhitespace(header.second))});
  }
  return request;
}

std::string Headers(const HttpResponse& response) {
  std::string text;
  for (const HttpHeader& header : response.headers) absl::StrAppend(&text, header.name, ": ", header.value, "\r\n");
  return text;
}

// Into a connection as chunks.
class ChunkSink : public StreamSink {
 public:
  ChunkSink(RawConnection& connection, std::function<bool()> turn) : connection_(connection), turn_(std::move(turn)) {}
  bool opened() const { return opened_; }
  absl::Status OnOpen(const HttpResponse& head) override {
    opened_ = true;
    return Write(absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", Headers(head), "\r\n"));
  }
  absl::Status OnData(absl::string_view chunk) override {
    return chunk.empty() ? absl::OkStatus() : Write(absl::StrCat(absl::StrFormat("%x\r\n", chunk.size()), chunk, "\r\n"));
  }

 private:
  absl::Status Write(absl::string_view bytes) {
    return turn_() && connection_.Write(bytes) ? absl::OkStatus() : absl::UnavailableError("the client is gone");
  }
  RawConnection& connection_;
  const std::function<bool()> turn_;
  bool opened_ = false;
};

}  // namespace

FakeHttpServer::FakeHttpServer(FakeApiServer& api, const RawServerTls& tls)
    : api_(api), server_(std::make_unique<RawServer>([this](RawConnection& connection) { Serve(connection); }, tls)) {}

FakeHttpServer::~FakeHttpServer() {
  stop_.request_stop();
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  server_.reset();
}

void FakeHttpServer::Freeze(bool frozen) {
  const base::MutexLock lock(mutex_);
  frozen_ = frozen;
  changed_.notify_all();
}

void FakeHttpServer::Cut(bool cut) {
  const base::MutexLock lock(mutex_);
  cut_ = cut;
  changed_.notify_all();
}

void FakeHttpServer::SetDelay(absl::Duration delay) {
  const base::MutexLock lock(mutex_);
  delay_ = delay;
}

bool FakeHttpServer::WaitForTurn(bool answer) {
  base::UniqueLock lock(mutex_);
  if (answer && delay_ > absl::ZeroDuration())
    changed_.wait_for(lock, absl::ToChronoNanoseconds(delay_), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; });
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || cut_ || !frozen_; });
  return !stopping_ && !cut_;
}

void FakeHttpServer::Serve(RawConnection& connection) {
  {
    const base::MutexLock lock(mutex_);
    if (cut_) return;
  }
  while (true) {
    const std::optional<HttpRequest> request = Read(connection.ReadRequest());
    if (!request.has_value() || !WaitForTurn(/*answer=*/true)) return;
    const bool watch = absl::StrContains(request->target, "watch=true") || absl::StrContains(request->target, "watch=1");
    if (watch ? !Watch(connection, *request) : !Answer(connection, *request)) return;
  }
}

bool FakeHttpServer::Answer(RawConnection& connection, const HttpRequest& request) {
  const absl::StatusOr<HttpResponse> response = api_.Send(request, {}, stop_.get_token());
  return response.ok() && connection.Answer(response->code, response->body, Headers(*response));
}

bool FakeHttpServer::Watch(RawConnection& connection, const HttpRequest& request) {
  // A client that hangs up is noticed when there is something to write, or by its timeout.
  ChunkSink sink(connection, [this] { return WaitForTurn(/*answer=*/false); });
  const absl::StatusOr<HttpResponse> response = api_.Stream(request, {}, sink, stop_.get_token());
  if (!response.ok()) return false;
  if (!sink.opened()) return connection.Answer(response->code, response->body, Headers(*response));
  return connection.Write("0\r\n\r\n");
}

}  // namespace fusionllm::kube::testing
