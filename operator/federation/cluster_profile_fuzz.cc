// Provider files, and ClusterProfiles as any cluster manager may have written them: the first line is the file, the rest the profile.
#include <algorithm>

#include "lib/base/testing/fuzz.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/auth/kubeconfig.h"
#include "operator/federation/cluster_profile.h"

namespace fusionllm::op::federation {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"providers":[{"name":"a","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"login","args":["t"],"env":[{"name":"R","value":"eu"}],"installHint":"h","provideClusterInfo":true,"interactiveMode":"Never"},"profileSourcedCLIArgsPolicy":"Append","profileSourcedEnvVarsPolicy":"Replace","profileSourcedEnvVarNames":["R","S"]}]})"
      "\n"
      R"({"status":{"accessProviders":[{"name":"a","cluster":{"server":"https://p:1","tls-server-name":"p","certificate-authority-data":"Q0E=","proxy-url":"http://q","extensions":[)"
      R"({"name":"client.authentication.k8s.io/exec","extension":{"c":["7",1,null,true]}},)"
      R"({"name":"clusterprofiles.multicluster.x-k8s.io/exec/additional-args","extension":["--c","p"]},)"
      R"({"name":"clusterprofiles.multicluster.x-k8s.io/exec/additional-envs","extension":{"R":"us","S":"x"}}]}}]}})",
      R"({"providers":[{"name":"b","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"c"},"profileSourcedEnvVarsPolicy":"AppendIfNotExists"}]})"
      "\n"
      R"({"status":{"credentialProviders":[{"name":"b","cluster":{"server":"https://b","insecure-skip-tls-verify":true}}]}})",
  };
}

std::vector<std::string> Words() {
  return {"\"command\":",
          "\"name\":\"a\"",
          "\"extensions\":[",
          "\"extension\":",
          "\"accessProviders\":[",
          "\"certificate-authority\":\"/x\"",
          "\"LD_PRELOAD\":\"x\"",
          "\\u0000",
          "\\ud83d",
          "null",
          "{},",
          "\"Ignore\""};
}

bool Accepts(absl::string_view input) {
  const size_t end = input.find('\n');
  const absl::StatusOr<AccessProviders> providers = ParseAccessProviders(input.substr(0, end), "file");
  FUZZ_CHECK(providers.ok() ? !providers->empty() : !providers.status().message().empty());
  if (!providers.ok() || end == absl::string_view::npos) return false;
  const AccessProviders before = *providers;
  const absl::StatusOr<std::string> text = KubeconfigOfProfile(input.substr(end + 1), *providers);
  FUZZ_CHECK(*providers == before);
  if (!text.ok()) {
    FUZZ_CHECK(!text.status().message().empty());
    return false;
  }
  // Whatever the profile says, the program is that of a provider.
  const absl::StatusOr<kube::Kubeconfig> kubeconfig = kube::ParseKubeconfig(*text, "profile", "");
  if (!kubeconfig.ok()) return false;
  const absl::StatusOr<kube::ClientConfig> config = kube::ResolveContext(*kubeconfig);
  FUZZ_CHECK(config.ok() && config->exec.has_value() && config->token.empty() && config->token_file.empty() && config->key.empty());
  FUZZ_CHECK(CommandsOf(*providers).contains(config->exec->command));
  for (const auto& variable : config->exec->env) {
    // Of some provider; by which of them the profile is read is not known.
    const bool known = std::any_of(providers->begin(), providers->end(), [&](const AccessProvider& provider) {
      const auto& own = provider.exec.env;
      return provider.profile_env.contains(variable.first) ||
             std::any_of(own.begin(), own.end(), [&](const auto& one) { return one.first == variable.first; });
    });
    FUZZ_CHECK(!variable.first.empty() && known);
  }
  return kube::CheckUntrustedConfig(*config, {.exec_allowed = CommandsOf(*providers)}).empty() || config->insecure;
}

}  // namespace
}  // namespace fusionllm::op::federation

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() {
  return {op::federation::Seeds, op::federation::Words, op::federation::Accepts};
}
