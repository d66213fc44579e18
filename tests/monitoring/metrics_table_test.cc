// docs/reference/metrics.md lists what the programs export, no more and no less.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/daemon/process_metrics.h"
#include "operator/manager/fleet_metrics.h"
#include "operator/manager/operator_metrics.h"
#include "services/broker/run_metrics.h"
#include "services/executor/executor_metrics.h"
#include "services/executor/gpu_metrics.h"
#include "services/scheduler/plan_metrics.h"

namespace fusionllm::monitoring {
namespace {

struct Exported {
  metrics::FamilyInfo info;
  std::vector<std::string> by;  // programs
};

std::map<std::string, Exported> AllFamilies() {
  metrics::Registry broker("fusion-broker", "0"), executor("fusion-executor", "0"), scheduler("fusion-scheduler", "0");
  const services::RunMetrics run(broker, {});
  const services::ExecutorMetrics stage(executor, "a");
  services::AddGpuMetrics(executor, nullptr);
  const services::PlanMetrics plan(scheduler);
  // As operator/main.cc.
  metrics::Registry op("fusion-operator", "0");
  const op::manager::OperatorMetrics own(op);
  const op::manager::FleetMetrics fleet(
      op, [] { return std::vector<std::shared_ptr<const op::cache::JobView>>(); },
      [] { return std::map<std::string, op::cache::ConnectionState>(); });
  for (metrics::Registry* registry : {&broker, &executor, &scheduler, &op}) daemon::AddProcessMetrics(*registry);
  std::map<std::string, Exported> all;
  const std::pair<const char*, const metrics::Registry*> programs[] = {
      {"broker", &broker}, {"executor", &executor}, {"scheduler", &scheduler}, {"operator", &op}};
  for (const auto& [program, registry] : programs) {
    for (const metrics::FamilyInfo& info : registry->Families()) {
      Exported& exported = all.try_emplace(info.name, Exported{info, {}}).first->second;
      EXPECT_EQ(exported.info, info) << "one name, one meaning";
      exported.by.push_back(program);
    }
  }
  return all;
}

std::vector<std::string> Rows() {
  std::vector<std::string> rows;
  for (const auto& [name, exported] : AllFamilies()) {
    const std::string labels = exported.info.labels.empty() ? "" : absl::StrCat("`", absl::StrJoin(exported.info.labels, "`, `"), "`");
    rows.push_back(absl::StrCat("| `", name, "` | ", metrics::Name(exported.info.kind), " | ", labels, " | ",
                                absl::StrJoin(exported.by, ", "), " | ", exported.info.help, " |"));
  }
  return rows;
}

TEST(MetricsTableTest, TheDocumentListsWhatIsExported) {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  std::ifstream in(absl::StrCat(root == nullptr ? "." : root, "/docs/reference/metrics.md"));
  std::vector<std::string> written;
  for (std::string line; std::getline(in, line);) {
    const bool theirs = absl::StartsWith(line, "| `DCGM_");  // not ours to compare
    if (absl::StartsWith(line, "| `") && !absl::StartsWith(line, "| `/") && !theirs) written.push_back(line);
  }
  EXPECT_EQ(written, Rows()) << "docs/reference/metrics.md should have these rows:\n" << absl::StrJoin(Rows(), "\n");
}

TEST(MetricsTableTest, NamesAndHelpFollowPrometheus) {
  // The others are names that dashboards of Kubernetes controllers know.
  const std::regex name("(fusionllm|process|workqueue|controller_runtime|rest_client|leader_election)_[a-z]+(_[a-z]+)*"),
      label("[a-z]+(_[a-z]+)?");
  for (const auto& [unused, exported] : AllFamilies()) {
    const metrics::FamilyInfo& info = exported.info;
    EXPECT_TRUE(std::regex_match(info.name, name)) << info.name;
    EXPECT_EQ(absl::EndsWith(info.name, "_total"), info.kind == metrics::Kind::kCounter) << info.name;
    for (const char* unit : {"_ms", "_milliseconds", "_percent", "_kb", "_mb", "_mib", "_minutes"}) {
      EXPECT_FALSE(absl::EndsWith(info.name, unit)) << info.name << ": base units";
    }
    EXPECT_TRUE(absl::EndsWith(info.help, ".")) << info.name;
    EXPECT_EQ(info.help.find('|'), std::string::npos) << info.name << ": would break the table";
    for (const std::string& l : info.labels) EXPECT_TRUE(std::regex_match(l, label)) << info.name << " " << l;
    EXPECT_EQ(std::set<std::string>(info.labels.begin(), info.labels.end()).size(), info.labels.size()) << info.name;
  }
}

// A series for each value of these would never end in number.
TEST(MetricsTableTest, NoLabelIsUnbounded) {
  const std::set<std::string> bounded = {"call_status", "class",  "cluster", "code",   "controller", "device",  "dir",     "dst",
                                         "host",        "kind",   "link",    "method", "name",       "outcome", "program", "reason",
                                         "resource",    "result", "src",     "stage",  "state",      "verb",    "version", "xid"};
  // Of objects that users make; each goes with its object.
  const std::set<std::string> of_jobs = {"job_namespace", "job_name"};
  for (const auto& [unused, exported] : AllFamilies()) {
    for (const std::string& label : exported.info.labels) {
      EXPECT_TRUE(bounded.contains(label) || of_jobs.contains(label)) << exported.info.name << " " << label;
      if (of_jobs.contains(label)) {
        EXPECT_EQ(exported.info.kind, metrics::Kind::kGauge) << exported.info.name << ": the others cannot go";
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::monitoring
