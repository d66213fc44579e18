#include "lib/objectstore/testing/fake_s3.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::objectstore::testing {
namespace {

constexpr char kKeyId[] = "AKIDEXAMPLE", kRegion[] = "eu-test-1", kToken[] = "session";
constexpr size_t kPage = 1000;

std::string Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string EscapeXml(absl::string_view text) {
  std::string out;
  for (const unsigned char c : text) {
    const bool plain = absl::ascii_isalnum(c) || c == '/' || c == '-' || c == '.' || c == '_';
    if (plain) out.push_back(static_cast<char>(c));
    if (!plain) absl::StrAppend(&out, absl::StrFormat("%%%02X", c));
  }
  return out;
}

FakeRequest Parse(const std::string& text) {
  FakeRequest request;
  const size_t head_end = text.find("\r\n\r\n");
  request.body = text.substr(head_end + 4);
  const std::vector<std::string> lines = absl::StrSplit(text.substr(0, head_end), "\r\n");
  const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
  request.method = first[0];
  const std::pair<std::string, std::string> target = absl::StrSplit(first.at(1), absl::MaxSplits('?', 1));
  const std::pair<std::string, std::string> path = absl::StrSplit(absl::StripPrefix(target.first, "/"), absl::MaxSplits('/', 1));
  request.bucket = path.first;
  request.key = Unescape(path.second);
  for (const absl::string_view part : absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    request.query[pair.first] = Unescape(pair.second);
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    request.headers[absl::AsciiStrToLower(lines[i].substr(0, colon))] = std::string(absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
  }
  return request;
}

std::string Header(const FakeRequest& request, const char* name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? "" : found->second;
}

// What is wrong with the signature's form; empty: nothing.
std::string WhyUnsigned(const FakeRequest& request) {
  const std::string date = Header(request, "x-amz-date");
  if (date.size() != 16 || date[8] != 'T' || date[15] != 'Z') return "x-amz-date";
  if (Header(request, "x-amz-security-token") != kToken) return "x-amz-security-token";
  const std::string text = Header(request, "authorization");
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "AWS4-HMAC-SHA256 ")) return "the algorithm";
  if (!absl::ConsumePrefix(&rest, absl::StrCat("Credential=", kKeyId, "/", date.substr(0, 8), "/", kRegion, "/s3/aws4_request"))) {
    return "the credential's scope";
  }
  const size_t headers = rest.find("SignedHeaders="), signature = rest.find("Signature=");
  if (headers == absl::string_view::npos || signature == absl::string_view::npos) return "SignedHeaders or Signature";
  const absl::string_view names = rest.substr(headers + 14, rest.find(',', headers) - headers - 14);
  const std::vector<std::string> all = absl::StrSplit(names, ';');
  for (const char* name : {"host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}) {
    if (std::find(all.begin(), all.end(), name) == all.end()) return absl::StrCat(name, " is not signed");
  }
  if (!std::is_sorted(all.begin(), all.end())) return "the headers are not sorted";
  for (const std::string& name : all) {
    if (!request.headers.contains(name)) return absl::StrCat(name, " is signed and was not sent");
  }
  const absl::string_view hex = rest.substr(signature + 10);
  return hex.size() == 64 && std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit) ? "" : "the signature";
}

}  // namespace

StoreOptions FastRetryOptions(int attempts) {
  return {.retry_policy = {.attempts = attempts, .initial_backoff = absl::Milliseconds(1), .max_backoff = absl::Milliseconds(2)}};
}

FakeS3::FakeS3(std::vector<std::string> buckets) {
  for (const std::string& bucket : buckets) buckets_[bucket];
  server_ = std::make_unique<kube::testing::RawServer>([this](kube::testing::RawConnection& connection) { Serve(connection); });
}

void FakeS3::SetHook(Hook hook) {
  const base::MutexLock lock(mutex_);
  hook_ = std::move(hook);
}

StoreSettings FakeS3::Settings() const {
  return {
      .endpoint = server_->Url(), .region = kRegion, .access_key_id = kKeyId, .secret_access_key = "secret/+=", .session_token = kToken};
}

void FakeS3::SetEnvironment() const {
  const StoreSettings settings = Settings();
  setenv("AWS_ACCESS_KEY_ID", settings.access_key_id.c_str(), 1);
  setenv("AWS_SECRET_ACCESS_KEY", settings.secret_access_key.c_str(), 1);
  setenv("AWS_SESSION_TOKEN", settings.session_token.c_str(), 1);
  setenv("AWS_REGION", settings.region.c_str(), 1);
  setenv("AWS_ENDPOINT_URL_S3", settings.endpoint.c_str(), 1);
}

void FakeS3::Store(const std::string& bucket, const std::string& key, const std::string& content) {
  ++clock_;
  const std::string modified = absl::StrFormat("2026-01-01T%02d:%02d:%02d.000Z", clock_ / 3600 % 24, clock_ / 60 % 60, clock_ % 60);
  buckets_[bucket][key] = {.content = content, .etag = absl::StrCat("\"", Sha256Hex(content).substr(0, 32), "\""), .modified = modified};
}

void FakeS3::Put(const std::string& bucket, const std::string& key, const std::string& content) {
  const base::MutexLock lock(mutex_);
  Store(bucket, key, content);
}

std::optional<std::string> FakeS3::Get(const std::string& bucket, const std::string& key) const {
  const base::MutexLock lock(mutex_);
  const auto& objects = buckets_.at(bucket);
  const auto found = objects.find(key);
  if (found == objects.end()) return std::nullopt;
  return found->second.content;
}

std::vector<std::string> FakeS3::Keys(const std::string& bucket) const {
  const base::MutexLock lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, object] : buckets_.at(bucket)) keys.push_back(key);
  return keys;
}

std::vector<std::string> FakeS3::Log() const {
  const base::MutexLock lock(mutex_);
  return log_;
}

size_t FakeS3::open_uploads() const {
  const base::MutexLock lock(mutex_);
  return uploads_.size();
}

std::string FakeS3::Error(absl::string_view code, absl::string_view message) {
  return absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>", code, "</Code><Message>", message, "</Message></Error>");
}

void FakeS3::Serve(kube::testing::RawConnection& connection) {
  while (true) {
    const std::string text = connection.ReadRequest();
    if (text.empty()) return;
    const FakeRequest request = Parse(text);
    Hook hook;
    {
      const base::MutexLock lock(mutex_);
      hook = hook_;
    }
    if (hook && hook(request, connection)) return;
    Answer answer;
    {
      const base::MutexLock lock(mutex_);
      answer = Handle(request);
      log_.push_back(absl::StrCat(request.method, " ", request.bucket, request.key.empty() ? "" : "/", request.key));
    }
    if (!connection.Answer(answer.code, answer.body, answer.headers)) return;
  }
}

FakeS3::Answer FakeS3::Handle(const FakeRequest& request) {
  if (const std::string why = WhyUnsigned(request); !why.empty()) return {403, Error("SignatureDoesNotMatch", why), ""};
  if (Header(request, "x-amz-content-sha256") != Sha256Hex(request.body)) return {400, Error("XAmzContentSHA256Mismatch", ""), ""};
  if (!buckets_.contains(request.bucket)) return {404, Error("NoSuchBucket", "The specified bucket does not exist"), ""};
  if (request.key.empty()) return request.method == "GET" ? List(request) : Answer{405, Error("MethodNotAllowed", ""), ""};
  if (request.query.contains("uploads") || request.query.contains("uploadId")) return Upload(request);
  if (request.method == "GET") return GetObject(request);
  if (request.method == "PUT") {
    Store(request.bucket, request.key, request.body);
    return {200, "", ""};
  }
  if (request.method == "DELETE") {
    buckets_[request.bucket].erase(request.key);
    return {204, "", ""};
  }
  return {405, Error("MethodNotAllowed", ""), ""};
}

FakeS3::Answer FakeS3::List(const FakeRequest& request) const {
  const auto parameter = [&](const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? "" : found->second;
  };
  size_t most = kPage;
  if (parameter("list-type") != "2" || !absl::SimpleAtoi(parameter("max-keys"), &most)) return {400, Error("InvalidArgument", ""), ""};
  std::string body = "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>", after = parameter("continuation-token");
  size_t count = 0;
  std::string last;
  bool truncated = false;
  for (const auto& [key, object] : buckets_.at(request.bucket)) {
    if (!absl::StartsWith(key, parameter("prefix")) || (!after.empty() && key <= after)) continue;
    truncated = count == std::min(most, kPage);
    if (truncated) break;
    ++count;
    last = key;
    absl::StrAppend(&body, "<Contents><Key>", EscapeXml(key), "</Key><LastModified>", object.modified, "</LastModified><ETag>&quot;",
                    object.etag.substr(1, 32), "&quot;</ETag><Size>", object.content.size(), "</Size></Contents>");
  }
  absl::StrAppend(&body, "<IsTruncated>", truncated ? "true" : "false", "</IsTruncated>");
  if (truncated) absl::StrAppend(&body, "<NextContinuationToken>", EscapeXml(last), "</NextContinuationToken>");
  return {200, absl::StrCat(body, "</ListBucketResult>"), ""};
}

FakeS3::Answer FakeS3::GetObject(const FakeRequest& request) const {
  const auto& objects = buckets_.at(request.bucket);
  const auto found = objects.find(request.key);
  if (found == objects.end()) return {404, Error("NoSuchKey", "The specified key does not exist."), ""};
  const std::string if_match = Header(request, "if-match"), range = Header(request, "range");
  if (!if_match.empty() && if_match != found->second.etag) return {412, Error("PreconditionFailed", ""), ""};
  const std::string& content = found->second.content;
  const std::string etag = absl::StrCat("ETag: ", found->second.etag, "\r\n");
  absl::string_view text = range;
  if (!absl::ConsumePrefix(&text, "bytes=")) return {200, content, etag};
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  size_t from = 0, to = content.size();
  if (!absl::SimpleAtoi(ends.first, &from) || from >= content.size()) return {416, Error("InvalidRange", ""), ""};
  if (!absl::SimpleAtoi(ends.second, &to) || to >= content.size()) to = content.size() - 1;
  return {206, content.substr(from, to - from + 1),
          absl::StrCat(etag, "Content-Range: bytes ", from, "-", to, "/", content.size(), "\r\n")};
}

FakeS3::Answer FakeS3::Upload(const FakeRequest& request) {
  if (request.query.contains("uploads")) {
    const std::string id = absl::StrCat("upload+", ++clock_, "/=");
    uploads_[id];
    return {200, absl::StrCat("<InitiateMultipartUploadResult><UploadId>", id, "</UploadId></InitiateMultipartUploadResult>"), ""};
  }
  const std::string& id = request.query.at("uploadId");
  if (!uploads_.contains(id)) return {404, Error("NoSuchUpload", ""), ""};
  if (request.method == "PUT") {
    int number = 0;
    if (!absl::SimpleAtoi(request.query.at("partNumber"), &number)) return {400, Error("InvalidArgument", ""), ""};
    uploads_[id][number] = request.body;
    return {200, "", absl::StrCat("ETag: \"part", number, "\"\r\n")};
  }
  if (request.method == "POST") {
    std::string whole;
    for (const auto& [number, part] : uploads_[id]) {
      if (!absl::StrContains(request.body, absl::StrCat("<PartNumber>", number, "</PartNumber><ETag>\"part", number, "\"</ETag>"))) {
        return {400, Error("InvalidPart", request.body), ""};
      }
      whole += part;
    }
    Store(request.bucket, request.key, whole);
  }
  uploads_.erase(id);
  return {request.method == "POST" ? 200 : 204, "", ""};
}

}  // namespace fusionllm::objectstore::testing
