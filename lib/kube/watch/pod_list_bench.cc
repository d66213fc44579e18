// A LIST of 10,000 Pods, as an API server sends it, into the cache. The text is made piece by piece, as it comes from a connection, so the
// memory is that of the cache: rss_mib is the whole process at the end, cache_mib what the cache added to it.
#include <benchmark/benchmark.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/kube/watch/list_splitter.h"
#include "lib/kube/watch/object.h"
#include "lib/kube/watch/store.h"

namespace fusionllm::kube {
namespace {

constexpr int kPods = 10'000;

// An executor's Pod with two containers and what the server and the kubelet add to it, 7 kB; managedFields are two fifths of it.
std::string PodText() {
  std::string managed;
  for (int manager = 0; manager < 3; ++manager) {
    std::string fields;
    for (int i = 0; i < 22; ++i) absl::StrAppend(&fields, i == 0 ? "" : ",", "\"f:field", i, "\":{\".\":{},\"f:nested\":{}}");
    absl::StrAppend(
        &managed, manager == 0 ? "" : ",", R"({"manager":"manager-)", manager,
        R"(","operation":"Update","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{)", fields,
        "}}}");
  }
  std::string containers, statuses;
  for (int i = 0; i < 2; ++i) {
    std::string env;
    for (int e = 0; e < 8; ++e)
      absl::StrAppend(&env, e == 0 ? "" : ",", R"({"name":"FUSIONLLM_SETTING_)", e, R"(","value":"value of setting )", e, "\"}");
    absl::StrAppend(
        &containers, i == 0 ? "" : ",", R"({"name":"container-)", i, R"(","image":"registry.example/fusion-executor:1.0","env":[)", env,
        R"(],"resources":{"limits":{"cpu":"2","memory":"4Gi"},"requests":{"cpu":"2","memory":"4Gi"}},"volumeMounts":[{"name":"kube-api-access",)",
        R"("readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"imagePullPolicy":"IfNotPresent"})");
    absl::StrAppend(
        &statuses, i == 0 ? "" : ",", R"({"name":"container-)", i,
        R"(","state":{"running":{"startedAt":"2024-01-01T00:00:05Z"}},"lastState":{},"ready":true,"restartCount":0,)",
        R"("image":"registry.example/fusion-executor:1.0","imageID":"sha256:0123456789abcdef0123456789abcdef","containerID":"containerd://)",
        i, R"(","started":true})");
  }
  std::string conditions;
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    absl::StrAppend(&conditions, conditions.empty() ? "" : ",", R"({"type":")", type,
                    R"(","status":"True","lastProbeTime":null,"lastTransitionTime":"2024-01-01T00:00:05Z"})");
  }
  return absl::StrCat(
      R"({"metadata":{"name":"gpt2-paris-@","namespace":"training","uid":"01234567-89ab-cdef-0123-@","resourceVersion":"1@","creationTimestamp":)",
      R"("2024-01-01T00:00:00Z","labels":{"app.kubernetes.io/name":"fusionllm","app.kubernetes.io/component":"executor","fusionllm.io/job":"gpt2",)",
      R"("fusionllm.io/origin":"hub","fusionllm.io/cluster":"paris","fusionllm.io/index":"@"},"annotations":{"fusionllm.io/plan":"7"},)",
      R"("ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gpt2","uid":"fedcba98-7654-3210","controller":true}],"managedFields":[)",
      managed, R"(]},"spec":{"containers":[)", containers,
      R"(],"nodeName":"node-17","serviceAccountName":"default","tolerations":[{"key":"a","effect":"NoExecute"}]},)",
      R"("status":{"phase":"Running","conditions":[)", conditions, R"(],"hostIP":"192.0.2.17","podIP":"10.1.2.3","containerStatuses":[)",
      statuses, R"(],"startTime":"2024-01-01T00:00:00Z","qosClass":"Guaranteed"}})");
}

double ResidentMib() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096 / (1 << 20);
}

void ListOfPods(benchmark::State& state) {
  const std::string text = PodText();
  double bytes = 0, before = 0, after = 0;
  for (auto _ : state) {
    state.PauseTiming();
    before = ResidentMib();
    auto store = std::make_unique<Store>();
    store->AddIndex("job", [](const Object& pod) { return std::vector<std::string>{std::string(pod.meta.Label("fusionllm.io/job"))}; });
    state.ResumeTiming();
    ListSplitter splitter(1 << 20);
    const auto take = [&](absl::string_view json) {
      absl::StatusOr<ObjectPtr> pod = DecodePod(json);
      if (pod.ok()) store->Put(*std::move(pod));
      return pod.status();
    };
    absl::Status status = splitter.Push(R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"77"},"items":[)", take);
    for (int i = 0; i < kPods && status.ok(); ++i) {
      state.PauseTiming();
      const std::string pod = absl::StrCat(i == 0 ? "" : ",", absl::StrReplaceAll(text, {{"@", absl::StrCat(100'000 + i)}}));
      bytes += static_cast<double>(pod.size());
      state.ResumeTiming();
      // As the pieces of a connection: none of them ends with an object.
      status = splitter.Push(absl::string_view(pod).substr(0, pod.size() / 2), take);
      if (status.ok()) status = splitter.Push(absl::string_view(pod).substr(pod.size() / 2), take);
    }
    if (status.ok()) status = splitter.Push("]}", take);
    if (status.ok()) status = splitter.Finish().status();
    state.PauseTiming();
    after = ResidentMib();
    if (!status.ok() || store->size() != kPods) state.SkipWithError(std::string(status.message()).c_str());
    store.reset();
    state.ResumeTiming();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  state.counters["rss_mib"] = after;
  state.counters["cache_mib"] = after - before;
  state.counters["pod_bytes"] = static_cast<double>(text.size());
}
BENCHMARK(ListOfPods)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace fusionllm::kube
