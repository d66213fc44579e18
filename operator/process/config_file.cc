#include "operator/process/config_file.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/job/document.h"
#include "lib/job/reader.h"
#include "lib/kube/auth/small_file.h"
#include "operator/process/config_fields.h"

namespace fusionllm::op {
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
  const std::pair<const char*, const std::string*> names[] = {
      {"origin", &flags.origin}, {"clusterName", &flags.cluster}, {"namespace", &flags.ns}};
  for (const auto& [path, name] : names) {
    if (const std::string wrong = name->empty() ? "" : CheckName(*name); !wrong.empty()) problems.Add(path, wrong);
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
  job::Reader(root, problems).ReadObject(flags);
  if (problems.Touches("featureGates")) problems.Add("featureGates", absl::StrCat("the gates are ", FeatureGateNames()));
  CheckTexts(flags, problems);
  FUSIONLLM_RETURN_IF_ERROR(problems.ToStatus());
  CLI::App app;
  AddFlags(app, flags);
  try {
    app.parse(line.argc, line.argv);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return flags;
}

}  // namespace fusionllm::op
