// The address of an API server as kubeconfigs write it: "https://host:6443", "https://[fd00::1]:6443/k8s/clusters/c-1".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

struct ServerUrl {
  std::string scheme;     // "https" or "http"
  std::string host;       // IPv6 in brackets
  int port = 0;           // 443 or 80 where the text says none
  std::string base_path;  // "" or "/k8s/clusters/c-1", without a slash at its end; kept in front of every path
  std::string authority;  // host and port as the text has them: what the server's Host header expects

  bool https() const { return scheme == "https"; }
  // Host and port: a metrics label, the word for the server in messages.
  std::string HostPort() const;
};

// InvalidArgument: another scheme, no host, a user or password in it, a query or a fragment, more than 2048 bytes.
absl::StatusOr<ServerUrl> ParseServerUrl(absl::string_view text);

// `text`, an address that is none or may be none, for a message: "https://..@host" of "https://user:password@host". Whatever stands in
// front of the last @ may be a password.
std::string RedactUserInfo(absl::string_view text);
// Whether it is the address of a proxy: http://, https://, socks5:// or socks5h://, a host, perhaps a user and a password, and no more.
// InvalidArgument else; the error holds nothing of the text, which may hold a password.
absl::Status CheckProxyUrl(absl::string_view text);

}  // namespace fusionllm::kube
