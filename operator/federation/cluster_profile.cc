#include "operator/federation/cluster_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;

// Extensions of a cluster that mean something besides kube::kExecExtension (KEP-5339): what the command line and the environment of
// programs that print credentials have more.
constexpr char kArgsExtension[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
constexpr char kEnvExtension[] = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";
// Of the cluster, the user and the context in the kubeconfig.
constexpr char kName[] = "profile";
// Of what an extension adds to a program's arguments or variables.
constexpr size_t kMaxArgs = 64, kMaxTextBytes = 4096;

// One way to a cluster.
struct Access {
  const json* cluster = nullptr;  // null: there is none
  std::string path;               // in the profile
};

absl::Status Wrong(absl::string_view path, absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat(path, " ", what)); }

Access FindAccess(const json& status, const std::string& provider) {
  for (const char* list : {"accessProviders", "credentialProviders"}) {
    size_t i = 0;
    for (const json& entry : kube::ListOf(kube::At(status, list))) {
      const size_t index = i++;
      if (kube::TextAt(entry, "name") == provider)
        return {&kube::At(entry, "cluster"), absl::StrCat("status.", list, "[", index, "].cluster")};
    }
  }
  return {};
}

std::string NamesOfAccess(const json& status) {
  std::vector<std::string> names;
  for (const char* list : {"accessProviders", "credentialProviders"}) {
    for (const json& entry : kube::ListOf(kube::At(status, list))) {
      if (const std::string name = kube::TextAt(entry, "name"); !name.empty()) names.push_back(name.substr(0, 100));
    }
  }
  if (names.empty()) return "it has none";
  constexpr size_t kNamed = 8;
  if (names.size() > kNamed) names.resize(kNamed);
  return absl::StrCat("it has ", absl::StrJoin(names, ", "));
}

// A text for a program. A NUL would end it unseen, and what a terminal would obey is in no argument or variable that is meant well.
absl::Status CheckText(const json& value, const std::string& path, absl::string_view form) {
  if (!value.is_string()) return Wrong(path, form);
  const std::string text = kube::TextOf(value);
  if (text.size() > kMaxTextBytes) return Wrong(path, absl::StrCat("holds a text of more than ", kMaxTextBytes, " bytes"));
  const bool control = std::any_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
  return control ? Wrong(path, "holds a text with control characters") : absl::OkStatus();
}

// `most`: arguments in all.
absl::Status AddArgs(const json& extension, const std::string& path, size_t most, std::vector<std::string>& args) {
  constexpr char kForm[] = "must be a list of texts";
  if (!extension.is_array()) return Wrong(path, kForm);
  if (args.size() + extension.size() > most) return Wrong(path, absl::StrCat("adds more than ", kMaxArgs, " arguments"));
  for (const json& arg : extension) {
    FUSIONLLM_RETURN_IF_ERROR(CheckText(arg, path, kForm));
    args.push_back(kube::TextOf(arg));
  }
  return absl::OkStatus();
}

absl::Status AddEnv(const json& extension, const std::string& path, const AccessProvider& provider,
                    std::vector<std::pair<std::string, std::string>>& env) {
  constexpr char kForm[] = "must map names of variables to texts";
  if (!extension.is_object()) return Wrong(path, kForm);
  for (const auto& item : extension.items()) {
    FUSIONLLM_RETURN_IF_ERROR(CheckText(item.value(), path, kForm));
    const auto at = std::find_if(env.begin(), env.end(), [&](const auto& variable) { return variable.first == item.key(); });
    if (at != env.end() && provider.env_policy == AccessProvider::EnvPolicy::kAppendIfNotExists) continue;
    if (!provider.profile_env.contains(item.key())) {
      return Wrong(path, absl::StrCat("must not set the variable \"", item.key().substr(0, 100),
                                      "\": it is not in the profileSourcedEnvVarNames of ", provider.name));
    }
    if (at == env.end()) {
      env.emplace_back(item.key(), kube::TextOf(item.value()));
    } else {
      at->second = kube::TextOf(item.value());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<json> ClusterOf(const Access& access) {
  json cluster = json::object();
  for (const char* key : {"server", "tls-server-name", "certificate-authority", "certificate-authority-data", "proxy-url"}) {
    const json& value = kube::At(*access.cluster, key);
    if (value.is_null()) continue;
    if (!value.is_string()) return Wrong(absl::StrCat(access.path, ".", key), "must be text");
    cluster[key] = value;
  }
  if (kube::TextAt(cluster, "server").empty()) return Wrong(absl::StrCat(access.path, ".server"), "is required");
  constexpr char kInsecure[] = "insecure-skip-tls-verify";
  if (const json& insecure = kube::At(*access.cluster, kInsecure); !insecure.is_null()) {
    if (!insecure.is_boolean()) return Wrong(absl::StrCat(access.path, ".", kInsecure), "must be true or false");
    cluster[kInsecure] = insecure;
  }
  return cluster;
}

json ToJson(const kube::ExecConfig& exec) {
  json env = json::array();
  for (const auto& [name, value] : exec.env) env.push_back({{"name", name}, {"value", value}});
  return {{"apiVersion", exec.api_version}, {"command", exec.command},          {"args", exec.args},
          {"env", std::move(env)},          {"installHint", exec.install_hint}, {"provideClusterInfo", exec.provide_cluster_info}};
}

absl::StatusOr<std::string> Kubeconfig(const Access& access, const AccessProvider& provider) {
  FUSIONLLM_ASSIGN_OR_RETURN(json cluster, ClusterOf(access));
  kube::ExecConfig exec = provider.exec;  // a copy: what one profile adds is not for the next
  size_t i = 0;
  for (const json& entry : kube::ListOf(kube::At(*access.cluster, "extensions"))) {
    const std::string path = absl::StrCat(access.path, ".extensions[", i++, "].extension");
    const std::string name = kube::TextAt(entry, "name");
    const json& extension = kube::At(entry, "extension");
    if (name == kArgsExtension && provider.append_args) {
      FUSIONLLM_RETURN_IF_ERROR(AddArgs(extension, path, provider.exec.args.size() + kMaxArgs, exec.args));
    } else if (name == kEnvExtension && provider.env_policy != AccessProvider::EnvPolicy::kIgnore) {
      FUSIONLLM_RETURN_IF_ERROR(AddEnv(extension, path, provider, exec.env));
    } else if (name == kube::kExecExtension) {
      cluster["extensions"].push_back({{"name", name}, {"extension", extension}});
    }
  }
  const json config = {{"kind", "Config"},
                       {"current-context", kName},
                       {"clusters", json::array({{{"name", kName}, {"cluster", std::move(cluster)}}})},
                       {"users", json::array({{{"name", kName}, {"user", {{"exec", ToJson(exec)}}}}})},
                       {"contexts", json::array({{{"name", kName}, {"context", {{"cluster", kName}, {"user", kName}}}}})}};
  return config.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::string> KubeconfigOfProfile(absl::string_view profile, const AccessProviders& providers) {
  const json object = kube::ParseJson(profile);
  const json& status = kube::At(object, "status");
  for (const AccessProvider& provider : providers) {
    const Access access = FindAccess(status, provider.name);
    if (access.cluster != nullptr) return Kubeconfig(access, provider);
  }
  std::vector<std::string> known;
  for (const AccessProvider& provider : providers) known.push_back(provider.name);
  return absl::NotFoundError(absl::StrCat("offers none of the access providers that the operator is given (", absl::StrJoin(known, ", "),
                                          "): ", NamesOfAccess(status)));
}

}  // namespace fusionllm::op::federation
