#include "lib/kube/testing/fake_request.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace fusionllm::kube::testing {
namespace {

std::string Decode(absl::string_view text) {
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

std::string HeaderOf(const HttpRequest& request, absl::string_view name) {
  for (const HttpHeader& header : request.headers) {
    if (absl::EqualsIgnoreCase(header.name, name)) return header.value;
  }
  return "";
}

// /api/v1/..., /apis/GROUP/VERSION/...: the segments after the version; false for other paths.
bool ReadPath(FakeRequest& out, std::vector<std::string>& rest) {
  std::vector<std::string> segments;
  for (const absl::string_view segment : absl::StrSplit(out.path, '/', absl::SkipEmpty())) segments.push_back(Decode(segment));
  size_t used = 0;
  if (segments.size() >= 3 && segments[0] == "api") {
    used = 2;
  } else if (segments.size() >= 4 && segments[0] == "apis") {
    out.group = segments[1];
    used = 3;
  } else {
    return false;
  }
  out.version = segments[used - 1];
  rest.assign(segments.begin() + static_cast<std::ptrdiff_t>(used), segments.end());
  // /namespaces/NS/PLURAL..., but /namespaces/NS and /namespaces/NS/status are about the namespace itself.
  if (rest[0] == "namespaces" && rest.size() >= 3 && rest[2] != "status" && rest[2] != "finalize") {
    out.key.ns = rest[1];
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  return rest.size() <= 3;
}

std::string Verb(const HttpRequest& request, const FakeRequest& read) {
  const bool one = !read.key.name.empty();
  if (request.method == "GET") return read.Query("watch") == "true" || read.Query("watch") == "1" ? "watch" : one ? "get" : "list";
  if (request.method == "POST" && one == !read.subresource.empty()) return "create";
  if (request.method == "PUT" && one) return "update";
  if (request.method == "PATCH" && one) return read.media_type == "application/apply-patch+yaml" ? "apply" : "patch";
  if (request.method == "DELETE" && one) return "delete";
  return "path";
}

}  // namespace

FakeRequest ReadRequest(const HttpRequest& request) {
  FakeRequest out;
  const size_t question = request.target.find('?');
  out.path = request.target.substr(0, question);
  if (question != std::string::npos) {
    for (const absl::string_view pair : absl::StrSplit(absl::string_view(request.target).substr(question + 1), '&', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
      out.query[Decode(parts.first)] = Decode(parts.second);
    }
  }
  const std::string media = HeaderOf(request, "Content-Type");
  out.media_type = media.substr(0, media.find(';'));
  out.metadata_only = absl::StrContains(HeaderOf(request, "Accept"), "as=PartialObjectMetadata");
  out.user_agent = HeaderOf(request, "User-Agent");
  std::vector<std::string> rest;
  if (!ReadPath(out, rest)) {
    out.verb = "path";
    return out;
  }
  out.plural = rest[0];
  if (rest.size() > 1) out.key.name = rest[1];
  if (rest.size() > 2) out.subresource = rest[2];
  out.verb = Verb(request, out);
  return out;
}

}  // namespace fusionllm::kube::testing
