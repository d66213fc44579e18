#include "operator/manager/config_file.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/daemon/monitoring_server.h"
#include "lib/job/document.h"
#include "lib/job/reader.h"
#include "lib/kube/auth/small_file.h"
#include "operator/manager/config_fields.h"
#include "operator/manager/image_reference.h"
#include "operator/manager/removed_gates.h"

namespace fusionllm::op::manager {
namespace {

// What the table cannot say. A text that could not be read stands at its default, which is in order.
void CheckTexts(const Flags& flags, job::Problems& problems) {
  const auto check = [&](bool holds, const char* path, const char* choices, const std::string& got) {
    if (!holds) problems.Add(path, absl::StrCat("must be ", choices, ", got ", job::JsonQuote(got)));
  };
  const daemon::CommonFlags& common = flags.common;
  check(base::ParseLogLevel(common.log_level).has_value(), "logLevel", "debug, info, warning or error", common.log_level);
  check(base::ParseLogFormat(common.log_format).has_value(), "logFormat", "text or json", common.log_format);
  const std::string& pull = flags.images.pull_policy;
  check(pull.empty() || pull == "Always" || pull == "IfNotPresent" || pull == "Never", "imagePullPolicy", "Always, IfNotPresent or Never",
        pull);
  const auto check_with = [&](const std::string& path, const std::string& text, auto wrong_with) {
    if (const std::string wrong = text.empty() ? "" : wrong_with(text); !wrong.empty()) problems.Add(path, wrong);
  };
  check_with("origin", flags.origin, CheckName);
  check_with("clusterName", flags.cluster, CheckName);
  check_with("namespace", flags.ns, CheckName);
  check_with("hubAddress", flags.hub_address, CheckHost);
  check_with("brokerImage", flags.images.broker, CheckImage);
  check_with("schedulerImage", flags.images.scheduler, CheckImage);
  check_with("executorImage", flags.images.executor, CheckImage);
  check_with("executorCudaImage", flags.images.executor_cuda, CheckImage);
  for (size_t i = 0; i < flags.namespaces.size(); ++i) check_with(absl::StrCat("watchNamespaces[", i, "]"), flags.namespaces[i], CheckName);
  for (size_t i = 0; i < flags.exec_programs.size(); ++i)
    check_with(absl::StrCat("execProgram[", i, "]"), flags.exec_programs[i], CheckProgram);
  for (size_t i = 0; i < flags.exec_env.size(); ++i) check_with(absl::StrCat("execEnv[", i, "]"), flags.exec_env[i], CheckVariable);
  if (const absl::Status status = daemon::CheckMonitoringAddress(flags.common.metrics_address); !status.ok()) {
    problems.Add("metricsAddress", status.message());
  }
  if (flags.scheduler.empty()) return;
  if (const absl::Status status = base::CheckDialable(flags.scheduler); !status.ok()) problems.Add("scheduler", status.message());
}

}  // namespace

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) { return kube::ReadSmallFile(path, job::kMaxDocumentBytes); }

absl::StatusOr<Flags> MergeFlags(absl::string_view yaml, absl::string_view file, const CommandLine& line) {
  Flags flags;
  job::Problems problems(file);
  job::Node root;
  if (!job::LoadDocument(yaml, root, problems)) return problems.ToStatus();
  problems.SetRoot(&root);
  const bool feature_gates = TakeRemovedGates(root, problems);
  job::Reader(root, problems).ReadObject(flags);
  CheckTexts(flags, problems);
  FUSIONLLM_RETURN_IF_ERROR(problems.ToStatus());
  flags.feature_gates = feature_gates;
  CLI::App app;
  AddFlags(app, flags);
  try {
    app.parse(line.argc, line.argv);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return flags;
}

}  // namespace fusionllm::op::manager
