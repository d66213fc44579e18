// Kubeconfigs as they come in Secrets that anybody may have written.
#include "lib/base/testing/fuzz.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/auth/kubeconfig.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() {
  return {R"(
kind: Config
current-context: hub
clusters:
- name: hub
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Q0EgUEVN, tls-server-name: k, proxy-url: "socks5://p:1",
            extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: "7", list: [1, true, ~]}}]}
users:
- name: admin
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ, token: abc}
- name: cloud
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: [a], env: [{name: NAME, value: v}], provideClusterInfo: true}
contexts:
- name: hub
  context: {cluster: hub, user: admin, namespace: team}
)",
          R"({"clusters":[{"name":"a","cluster":{"server":"https://a","insecure-skip-tls-verify":true}}],
"contexts":[{"name":"c","context":{"cluster":"a"}}],"current-context":"c"})"};
}

std::vector<std::string> Words() {
  return {"clusters:", "users:", "user:", "exec:", "tokenFile:", "extensions:", "auth-provider:", "certificate-authority:",
          "- name: ",  "&a ",    "*a",    "{",     "[",          "!!binary "};
}

bool Accepts(absl::string_view input) {
  const absl::StatusOr<Kubeconfig> config = ParseKubeconfig(input, "config", "");
  if (!config.ok()) {
    FUZZ_CHECK(!config.status().message().empty());
    return false;
  }
  for (const auto& [name, context] : config->contexts) {
    const absl::StatusOr<ClientConfig> client = ResolveContext(*config, name);
    if (!client.ok()) continue;
    const std::vector<ConfigRefusal> refusals = CheckUntrustedConfig(*client);
    // Nothing that passes reaches for a file or a program of ours.
    if (refusals.empty()) {
      FUZZ_CHECK(client->ca.path.empty() && client->certificate.path.empty() && client->key.path.empty());
      FUZZ_CHECK(client->token_file.empty() && !client->exec.has_value() && !client->insecure);
    }
  }
  return true;
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
