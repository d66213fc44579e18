#include "lib/kube/testing/fake_http_server.h"

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
  explicit ChunkSink(RawConnection& connection) : connection_(connection) {}
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
    return connection_.Write(bytes) ? absl::OkStatus() : absl::UnavailableError("the client is gone");
  }
  RawConnection& connection_;
  bool opened_ = false;
};

}  // namespace

FakeHttpServer::FakeHttpServer(FakeApiServer& api, const RawServerTls& tls)
    : api_(api), server_(std::make_unique<RawServer>([this](RawConnection& connection) { Serve(connection); }, tls)) {}

FakeHttpServer::~FakeHttpServer() {
  stop_.request_stop();
  server_.reset();
}

void FakeHttpServer::Serve(RawConnection& connection) {
  while (true) {
    const std::optional<HttpRequest> request = Read(connection.ReadRequest());
    if (!request.has_value()) return;
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
  ChunkSink sink(connection);
  const absl::StatusOr<HttpResponse> response = api_.Stream(request, {}, sink, stop_.get_token());
  if (!response.ok()) return false;
  if (!sink.opened()) return connection.Answer(response->code, response->body, Headers(*response));
  return connection.Write("0\r\n\r\n");
}

}  // namespace fusionllm::kube::testing
