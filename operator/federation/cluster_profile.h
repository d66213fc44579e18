// ClusterProfiles (multicluster.x-k8s.io/v1alpha1): what a cluster manager says of a cluster and of the ways to it. Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "operator/federation/access_providers.h"

namespace fusionllm::op::federation {

// The kubeconfig, as JSON, by which the profile's cluster is reached with the first of the providers that the profile knows, by its
// status.accessProviders or, as older ones call them, status.credentialProviders: the server and whom to trust from the profile, the
// program from the provider, with arguments and variables of the profile as the provider has it. The same profile gives the
// same text, whatever else is asked in between. The program is not run. It must still pass what kubeconfigs of others must.
//
// NotFound: the profile knows none of the providers. InvalidArgument names the field of the profile and what is wrong with it.
absl::StatusOr<std::string> KubeconfigOfProfile(absl::string_view profile, const AccessProviders& providers);

}  // namespace fusionllm::op::federation
