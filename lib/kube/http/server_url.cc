#include "lib/kube/http/server_url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kMaxUrlBytes = 2048;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

// A part of the URL; empty if it has none.
std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

absl::Status Bad(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the server address \"", RedactUserInfo(text).substr(0, 200), "\" ", why));
}

}  // namespace

std::string RedactUserInfo(absl::string_view text) {
  const size_t at = text.rfind('@');
  if (at == absl::string_view::npos) return std::string(text);
  const size_t slashes = text.substr(0, at).find("//");
  const absl::string_view scheme = slashes == absl::string_view::npos ? "" : text.substr(0, slashes + 2);
  return absl::StrCat(scheme, "..", text.substr(at));
}

std::string ServerUrl::HostPort() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<ServerUrl> ParseServerUrl(absl::string_view text) {
  if (text.size() > kMaxUrlBytes) return Bad(text, "is too long");
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (url == nullptr) return absl::ResourceExhaustedError("out of memory for a URL");
  // Without a scheme "host:6443" reads as the scheme "host": kubectl takes it for http, which no one means.
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), 0);
  if (code == CURLUE_BAD_SCHEME || code == CURLUE_UNSUPPORTED_SCHEME) return Bad(text, "must begin with https:// or http://");
  if (code != CURLUE_OK) return Bad(text, absl::StrCat("cannot be read: ", curl_url_strerror(code)));
  ServerUrl server;
  server.scheme = Part(url.get(), CURLUPART_SCHEME);
  if (server.scheme != "https" && server.scheme != "http") return Bad(text, "must begin with https:// or http://");
  if (!Part(url.get(), CURLUPART_USER).empty() || !Part(url.get(), CURLUPART_PASSWORD).empty()) {
    return absl::InvalidArgumentError("a server address must not hold a user or a password");
  }
  if (!Part(url.get(), CURLUPART_QUERY).empty() || !Part(url.get(), CURLUPART_FRAGMENT).empty()) {
    return Bad(text, "must not hold a query or a fragment");
  }
  server.host = Part(url.get(), CURLUPART_HOST);
  if (server.host.empty()) return Bad(text, "has no host");
  const std::string port = Part(url.get(), CURLUPART_PORT);
  server.authority = port.empty() ? server.host : absl::StrCat(server.host, ":", port);
  if (!absl::SimpleAtoi(Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT), &server.port) || server.port == 0)
    return Bad(text, "has no port");
  server.base_path = std::string(Part(url.get(), CURLUPART_PATH));
  while (absl::EndsWith(server.base_path, "/")) server.base_path.pop_back();
  return server;
}

absl::Status CheckProxyUrl(absl::string_view text) {
  const auto bad = [](absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat("the proxy address ", why)); };
  const auto begins = [&](absl::string_view scheme) { return absl::StartsWith(text, scheme); };
  if (!begins("http://") && !begins("https://") && !begins("socks5://") && !begins("socks5h://")) {
    return bad("must begin with http://, https:// or socks5://");
  }
  if (text.size() > kMaxUrlBytes) return bad("is too long");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
    return bad("holds a blank or a control byte");
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  if (url == nullptr) return absl::ResourceExhaustedError("out of memory for a URL");
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), CURLU_NON_SUPPORT_SCHEME);
  if (code != CURLUE_OK) return bad(absl::StrCat("cannot be read: ", curl_url_strerror(code)));
  if (Part(url.get(), CURLUPART_HOST).empty()) return bad("has no host");
  // With a path, libcurl takes socks5h://localhost for a socket of this machine.
  if (Part(url.get(), CURLUPART_PATH) != "/") return bad("must not hold a path");
  if (!Part(url.get(), CURLUPART_QUERY).empty() || !Part(url.get(), CURLUPART_FRAGMENT).empty()) {
    return bad("must not hold a query or a fragment");
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::kube
