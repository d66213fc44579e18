// The table of what may stand in the file of --config (lib/job/schema.h says who reads it): the flags of flags.cc by other names. A test
// compares the two.
#pragma once

#include "lib/job/schema.h"
#include "operator/manager/flags.h"

namespace fusionllm::op::manager {

inline constexpr absl::string_view kConfigApiVersion = "config.fusionllm.io/v1alpha1";
inline constexpr absl::string_view kConfigKind = "OperatorConfig";

// What holds at once when the file changes.
inline constexpr absl::string_view kReloadable[] = {"logLevel", "kubeApiQps", "kubeApiBurst"};

template <class V>
void Visit(V& v, Flags& f) {
  const job::Rule text{.may_be_empty = true};
  v.Constant("apiVersion", kConfigApiVersion);
  v.Constant("kind", kConfigKind);
  v.Field("kubeconfig", f.kubeconfig, text, "--kubeconfig");
  v.Field("origin", f.origin, {}, "--origin");
  v.Field("clusterName", f.cluster, {}, "--cluster-name");
  v.Field("namespace", f.ns, text, "--namespace");
  v.Field("hubAddress", f.hub_address, text, "--hub-address");
  v.Field("hubOnDemand", f.hub_on_demand, {}, "--hub-on-demand");
  v.Field("scheduler", f.scheduler, text, "--scheduler");
  v.Field("brokerImage", f.images.broker, {}, "--broker-image");
  v.Field("schedulerImage", f.images.scheduler, {}, "--scheduler-image");
  v.Field("executorImage", f.images.executor, {}, "--executor-image");
  v.Field("executorCudaImage", f.images.executor_cuda, text, "--executor-cuda-image");
  v.Field("imagePullPolicy", f.images.pull_policy, text, "--image-pull-policy");
  v.Field("leaderElect", f.elect, {}, "--leader-elect");
  v.Field("kubeApiQps", f.hub_qps, {.min = 1, .max = 10'000}, "--kube-api-qps");
  v.Field("kubeApiBurst", f.hub_burst, {.min = 1, .max = 10'000}, "--kube-api-burst");
  v.Field("watchNamespaces", f.namespaces, {}, "--watch-namespaces");
  v.Field("memberCacheMib", f.member_cache_mib, {.min = 4, .max = 65'536}, "--member-cache-mib");
  v.Field("execEnv", f.exec_env, {.one_or_many = true}, "--exec-env");
  v.Field("execProgram", f.exec_programs, {.one_or_many = true}, "--exec-program");
  v.Field("clusterProfileProviders", f.profile_providers, text, "--cluster-profile-providers");
  v.Field("workers", f.workers, {.min = 1, .max = 256}, "--workers");
  v.Field("metricsAddress", f.common.metrics_address, {}, "--metrics-address");
  v.Field("logLevel", f.common.log_level, {}, "--log-level");
  v.Field("logFormat", f.common.log_format, {}, "--log-format");
}

}  // namespace fusionllm::op::manager
