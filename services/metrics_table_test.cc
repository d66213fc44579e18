// docs/metrics.md lists what the services export, no more and no less.
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
#include "services/broker/run_probe.h"
#include "services/executor/stage_probe.h"
#include "services/scheduler/plan_probe.h"

namespace fusionllm::services {
namespace {

struct Exported {
  metrics::FamilyInfo info;
  std::vector<std::string> by;  // services
};

std::map<std::string, Exported> AllFamilies() {
  metrics::Registry broker("fusion-broker", "0"), executor("fusion-executor", "0"), scheduler("fusion-scheduler", "0");
  const RunProbe run(broker, {});
  const StageProbe stage(executor, "a");
  const PlanProbe plan(scheduler);
  std::map<std::string, Exported> all;
  const std::pair<const char*, const metrics::Registry*> services[] = {
      {"broker", &broker}, {"executor", &executor}, {"scheduler", &scheduler}};
  for (const auto& [service, registry] : services) {
    for (const metrics::FamilyInfo& info : registry->Families()) {
      Exported& exported = all.try_emplace(info.name, Exported{info, {}}).first->second;
      EXPECT_EQ(exported.info, info) << "one name, one meaning";
      exported.by.push_back(service);
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
  std::ifstream in(absl::StrCat(root == nullptr ? "." : root, "/docs/metrics.md"));
  std::vector<std::string> written;
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, "| `fusionllm_")) written.push_back(line);
  }
  EXPECT_EQ(written, Rows()) << "docs/metrics.md should have these rows:\n" << absl::StrJoin(Rows(), "\n");
}

TEST(MetricsTableTest, NamesAndHelpFollowPrometheus) {
  const std::regex name("fusionllm_[a-z]+(_[a-z]+)*"), label("[a-z]+");
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
  const std::set<std::string> bounded = {"class",   "device", "dir", "dst",   "kind",  "link",   "outcome",
                                         "program", "reason", "src", "stage", "state", "version"};
  for (const auto& [unused, exported] : AllFamilies()) {
    for (const std::string& label : exported.info.labels) EXPECT_TRUE(bounded.contains(label)) << exported.info.name << " " << label;
  }
}

}  // namespace
}  // namespace fusionllm::services
