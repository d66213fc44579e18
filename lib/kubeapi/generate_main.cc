// Writes crds/*.yaml, the chart's rights of members and policies, and docs/reference/kubernetes-reference.md below the folder that is its
// argument; tools/generate/crds.sh runs it.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "lib/kubeapi/crd.h"
#include "lib/kubeapi/pod_policy.h"
#include "lib/kubeapi/reference.h"
#include "lib/kubeapi/rights.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

constexpr char kNote[] = "# Generated from lib/job and lib/kubeapi: tools/check-generated.sh --write rewrites it.\n";

bool Write(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return static_cast<bool>(stream);
}

}  // namespace
}  // namespace fusionllm::kubeapi

int main(int argc, char** argv) {
  namespace kubeapi = fusionllm::kubeapi;
  if (argc != 2) {
    std::fputs("usage: kubeapi_generate FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const kubeapi::PolicySubject in_chart{"ACCOUNT_NAMESPACE", "ACCOUNT_NAME", {"SERVICE_ACCOUNTS"}, /*renews_tokens=*/true};
  const bool ok =
      kubeapi::Write(folder / "crds/fusionllm.io_fusionjobs.yaml", kubeapi::kNote + kubeapi::ToYaml(kubeapi::FusionJobCrd())) &&
      kubeapi::Write(folder / "crds/fusionllm.io_fusionclusters.yaml", kubeapi::kNote + kubeapi::ToYaml(kubeapi::FusionClusterCrd())) &&
      kubeapi::Write(folder / "helm/fusionllm/files/member-rights.yaml",
                     kubeapi::kNote + kubeapi::ToYaml({{"watch", kubeapi::MemberWatchRules()},
                                                       {"work", kubeapi::MemberWorkRules()},
                                                       {"token", kubeapi::MemberTokenRules("ACCOUNT_NAME")}})) &&
      // With words that the chart's templates/pod-policy.yaml puts its values in place of.
      kubeapi::Write(folder / "helm/fusionllm/files/pod-policy.yaml",
                     kubeapi::kNote + kubeapi::ToYaml({{"pods", kubeapi::PodPolicySpec(in_chart)},
                                                       {"places", kubeapi::PlacePolicySpec(in_chart)},
                                                       {"changes", kubeapi::ChangePolicySpec(in_chart)},
                                                       {"tokens", kubeapi::TokenPolicySpec(in_chart, "TOKEN_SECRET",
                                                                                           absl::ToInt64Seconds(kubeapi::kTokenLife))}})) &&
      kubeapi::Write(folder / "docs/reference/kubernetes-reference.md", kubeapi::ReferencePage());
  return ok ? 0 : 1;
}
