// The apiVersion of login programs that tests play.
#pragma once

namespace fusionllm::kube::testing {

inline constexpr char kExecVersion[] = "client.authentication.k8s.io/v1";

}  // namespace fusionllm::kube::testing
