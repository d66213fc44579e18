// Kubeconfig files: clusters, users, and contexts that join one of each.
//
// Limits: 1 MiB a file, 1,000 entries of a kind, 64 KiB of what a program gets to know of a cluster. Unknown fields are left alone, as
// kubectl does, and so are empty entries of a list, as a template leaves them. White space behind a token is cut off. A known field of the
// wrong type, a token with control characters, data that is no base64 and a second cluster, user or context of a name are errors that name
// the file, the line and the field. What a scalar without quotes is, base/yaml_scalar.h says: `token: 1_000` is a number, and no token.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/auth/client_config.h"

namespace fusionllm::kube {

inline constexpr size_t kMaxKubeconfigBytes = size_t{1} << 20;

struct Kubeconfig {
  struct Cluster {
    std::string server, tls_server_name, proxy_url;
    bool insecure = false;
    PemSource ca;
    std::string exec_config;  // ClientConfig::exec_cluster_config
  };
  struct User {
    PemSource certificate, key;
    std::string token, token_file;
    std::optional<ExecConfig> exec;
    bool basic_auth = false, auth_provider = false, impersonation = false;
  };
  struct Context {
    std::string cluster, user, ns;
  };
  std::string files;  // that it was read from, for messages: "a.yaml", "a.yaml:b.yaml"; empty: from none
  std::map<std::string, Cluster> clusters;
  std::map<std::string, User> users;
  std::map<std::string, Context> contexts;
  std::string current_context;
};

// `name` opens every error; paths in the text are relative to `folder`, or stay as they are when it is empty.
absl::StatusOr<Kubeconfig> ParseKubeconfig(absl::string_view text, absl::string_view name, absl::string_view folder);

// As kubectl: of files that name the same cluster, user or context, or a current context, the first wins. Files that do not exist, or are
// empty but for blanks and remarks, are left out; NotFound when no other is there. Blocks on the file system.
absl::StatusOr<Kubeconfig> LoadKubeconfig(const std::vector<std::string>& paths);
// Those of $KUBECONFIG, separated by ':', else ~/.kube/config.
std::vector<std::string> DefaultKubeconfigPaths();
// `file`, or with an empty one those; then NotFound says whether KUBECONFIG named them.
absl::StatusOr<Kubeconfig> LoadKubeconfigOrDefault(const std::string& file);

// What the context names; empty: the current one. NotFound says what is missing, and in which files.
absl::StatusOr<ClientConfig> ResolveContext(const Kubeconfig& config, absl::string_view context = {});

}  // namespace fusionllm::kube
