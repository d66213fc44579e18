// The programs that make credentials for clusters of ClusterProfiles: the provider file of SIG-Multicluster's cluster-inventory-api, as
// other consumers of ClusterProfiles read it, {"providers": [{"name", "execConfig", "profileSourcedCLIArgsPolicy", ...}]}. Plain values.
//
// One field is ours, which the library of that API passes over: "profileSourcedEnvVarNames". Which variables decide what code a program
// loads (GCONV_PATH, BASH_ENV, PYTHONPATH, ...) differs from program to program, so that no list of ours could say which are harmless.
//
// Limits: 1 MiB a file.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/auth/client_config.h"

namespace fusionllm::op::federation {

struct AccessProvider {
  // What a ClusterProfile may add to the variables of the program's environment.
  enum class EnvPolicy { kIgnore, kAppendIfNotExists, kReplace };

  std::string name;  // as in status.accessProviders of ClusterProfiles
  kube::ExecConfig exec;
  bool append_args = false;  // those of the ClusterProfile, after those of `exec`
  EnvPolicy env_policy = EnvPolicy::kIgnore;
  std::set<std::string> profile_env = {};  // the variables that a ClusterProfile may set, and no others
  bool operator==(const AccessProvider&) const = default;
};

// In order of preference.
using AccessProviders = std::vector<AccessProvider>;

// InvalidArgument names `file`, the field (or the line that is no JSON) and what is wrong: also with fields that are not known, for one
// that is misspelt would be one that is left out.
absl::StatusOr<AccessProviders> ParseAccessProviders(absl::string_view text, absl::string_view file);
// Blocks on the file system.
absl::StatusOr<AccessProviders> LoadAccessProviders(const std::string& path);

// The programs, as they are written there.
std::set<std::string> CommandsOf(const AccessProviders& providers);

}  // namespace fusionllm::op::federation
