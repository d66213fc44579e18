// Every query of the chart's dashboards and rules, asked of a Prometheus that scrapes what our programs export: a real fusion-operator
// between API servers in memory with kubelets that are played, and a broker's and an executor's pages (exporters.h). A metric or label that
// is renamed, or never exported, leaves a query without an answer here. Needs Debian's package prometheus; the metrics of real runs are
// compared with docs/reference/metrics.md in tests/integration/metrics_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <regex>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/http_get.h"
#include "lib/daemon/testing/program.h"
#include "lib/security/certificate_authority.h"
#include "operator/manifests/resources.h"
#include "tests/load/sim_cluster.h"
#include "tests/monitoring/chart_files.h"
#include "tests/monitoring/child.h"
#include "tests/monitoring/exporters.h"
#include "tests/monitoring/prometheus.h"
#include "tests/monitoring/promql.h"

namespace fusionllm::monitoring {
namespace {

using load::SimCluster;
using nlohmann::json;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kNoPrometheus[] = "no prometheus: install Debian's package of that name, or set FUSIONLLM_PROMETHEUS and FUSIONLLM_PROMTOOL";
constexpr int kMaxScrapes = 120;

// Refused: not in TLS.
constexpr char kPlainKubeconfig[] =
    "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://tokyo'}}], "
    "users: [{name: u, user: {}}], contexts: [{name: c, context: {cluster: c, user: u}}]}";

json JobObject(const std::string& name, int steps) {
  return {{"apiVersion", "fusionllm.io/v1alpha1"},
          {"kind", "FusionJob"},
          {"metadata", {{"name", name}, {"namespace", load::kNamespace}}},
          {"spec",
           {{"model", {{"family", "gpt2"}, {"preset", "tiny"}}},
            {"data", {{"kind", "text"}, {"path", {"corpus.txt"}}, {"volume", {{"configMap", {{"name", "text"}}}}}}},
            {"training", {{"steps", steps}}},
            {"network", {{"mode", "Relay"}}},
            {"executors", {{"replicas", 2}}}}}};
}

// An operator with a hub, a member that works and one that does not; a job that runs, one that starts again and comes to its end, one that
// waits, and one that was refused. Some of its first requests fail.
class Operator {
 public:
  Operator() {
    AddMember("paris", paris_.Kubeconfig());
    AddMember("tokyo", kPlainKubeconfig);
    Create(op::manifests::kFusionJobs, load::kNamespace, JobObject("train", 100));
    Create(op::manifests::kFusionJobs, load::kNamespace, JobObject("again", 100));
    Create(op::manifests::kFusionJobs, load::kNamespace, JobObject("refused", -1));
    json waits = JobObject("waits", 100);
    waits["spec"]["placement"] = {{"clusters", {{{"name", "tokyo"}}}}};
    Create(op::manifests::kFusionJobs, load::kNamespace, waits);
    hub_.server().AddFault({.verb = "apply", .target = "fusionjobs/train/status", .code = 500});
    hub_.server().AddFault({.verb = "list", .target = "fusionclusters", .code = 429, .headers = {{"Retry-After", "1"}}});
    const std::string kubeconfig = folder_.Write("kubeconfig", hub_.Kubeconfig());
    const std::string settings =
        folder_.Write("operator.yaml", "apiVersion: config.fusionllm.io/v1alpha1\nkind: OperatorConfig\nlogLevel: error\n");
    program_ = std::make_unique<daemon::Program>(
        "fusion-operator", std::vector<std::string>{"--kubeconfig", kubeconfig, "--namespace", "default", "--hub-address", "192.0.2.1",
                                                    "--leader-elect", "--config", settings, "--metrics-address", "127.0.0.1:0"});
    metrics_ = daemon::MetricsAddress(program_->Line());
    EXPECT_FALSE(metrics_.empty()) << "fusion-operator did not start";
  }

  // HOST:PORT
  const std::string& metrics() const { return metrics_; }

  // Something for it to do.
  void Stir() {
    if (stirred_++ == 4) paris_.server().BreakWatches();
    // The first scrape does not see the others begin.
    if (stirred_ == 6) Create(op::manifests::kFusionJobs, load::kNamespace, JobObject("later", 100));
    const json touch = {{"metadata", {{"annotations", {{"touched", absl::StrCat(stirred_)}}}}}};
    const kube::ObjectKey train{load::kNamespace, "train"};
    EXPECT_TRUE(hub_.admin().Patch(op::manifests::kFusionJobs, train, kube::PatchType::kMerge, touch.dump(), {}).ok());
    LeadAgain();
  }

 private:
  // Once it runs its broker fails, and the next one, once that runs, has made all steps.
  void LeadAgain() {
    const auto answer = hub_.admin().Get(op::manifests::kFusionJobs, {load::kNamespace, "again"});
    const json job = json::parse(answer.value_or("null"));
    if (job.value(json::json_pointer("/status/state"), "") != "Running") return;
    if (job["status"].value("attempt", 0) == 0) {
      (void)hub_.EndPod("again-broker-r0", "broker", 1, R"({"error":"killed"})");
    } else {
      (void)hub_.EndPod("again-broker-r1", "broker", 0, R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})");
    }
  }
  void Create(const kube::Resource& resource, const std::string& ns, const json& object) {
    const auto created = hub_.admin().Create(resource, ns, object.dump());
    EXPECT_TRUE(created.ok()) << created.status();
  }
  void AddMember(const std::string& name, const std::string& kubeconfig) {
    Create(op::manifests::kSecrets, "default",
           {{"apiVersion", "v1"},
            {"kind", "Secret"},
            {"metadata", {{"name", name}, {"namespace", "default"}}},
            {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}});
    Create(op::manifests::kFusionClusters, "",
           {{"apiVersion", "fusionllm.io/v1alpha1"},
            {"kind", "FusionCluster"},
            {"metadata", {{"name", name}}},
            {"spec", {{"kubeConfig", {{"location", name}}}}}});
  }

  base::TempFolder folder_;
  const security::CertificateAuthority authority_ = security::CertificateAuthority::Create().value();
  SimCluster hub_{"hub", authority_}, paris_{"paris", authority_};
  std::string metrics_;
  int stirred_ = 0;
  std::unique_ptr<daemon::Program> program_;  // last: it goes before its servers
};

// As the chart's ServiceMonitor and PodMonitor have it labelled.
std::string Config(const std::string& operator_page, const Exporters& run) {
  std::string config = "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files:\n";
  for (const std::string& file : RuleFiles()) absl::StrAppend(&config, "- ", std::filesystem::absolute(file).string(), "\n");
  absl::StrAppend(
      &config,
      "scrape_configs:\n"
      "- job_name: fusion-fusionllm-metrics\n  static_configs:\n  - targets: ['",
      operator_page,
      "']\n    labels: {namespace: fusion, pod: fusion-fusionllm-0}\n"
      "- job_name: fusion/fusion-fusionllm-jobs\n  static_configs:\n  - targets: ['",
      run.broker(),
      "']\n    labels: {namespace: ml, pod: train-broker-r0, fusionllm_io_job: train, fusionllm_io_role: broker}\n  - targets: ['",
      run.executor(),
      "']\n    labels: {namespace: ml, pod: train-paris-0-r0, fusionllm_io_job: train, fusionllm_io_role: executor, "
      "fusionllm_io_cluster: paris}\n"
      "- job_name: gpu-operator/dcgm-honored\n  honor_labels: true\n  static_configs:\n  - targets: ['",
      run.dcgm(),
      "']\n    labels: {namespace: gpu-operator, pod: dcgm-exporter-a}\n"
      "- job_name: gpu-operator/dcgm\n  static_configs:\n  - targets: ['",
      run.dcgm(), "']\n    labels: {namespace: gpu-operator, pod: dcgm-exporter-b}\n");
  return config;
}

class QueriesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (FindPrometheus().empty()) return;
    operator_ = new Operator;
    run_ = new Exporters;
    prometheus_ = new Prometheus(Config(operator_->metrics(), *run_));
  }
  static void TearDownTestSuite() {
    delete prometheus_;
    delete run_;
    delete operator_;
  }
  void SetUp() override {
    if (prometheus_ != nullptr) return;
    ASSERT_FALSE(PrometheusIsRequired()) << kNoPrometheus;
    GTEST_SKIP() << kNoPrometheus;
  }

  // While everybody goes on with his work, from scrape to scrape.
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < kMaxScrapes; ++i) {
      if (holds()) return true;
      operator_->Stir();
      if (!run_->WaitForScrape()) return false;
    }
    return false;
  }
  // Series whose value is a number.
  static json Numbers(const std::string& expression) {
    json numbers = json::array();
    for (const json& sample : prometheus_->Query(expression)) {
      if (sample["value"][1] != "NaN") numbers.push_back(sample);
    }
    return numbers;
  }
  static bool Answers(const std::string& expression) {
    return Eventually([&] { return !Numbers(expression).empty(); });
  }

  // The text that Grafana puts in for a variable when a user has chosen nothing: all where there is such a choice, else the first.
  static std::map<std::string, std::string> Choices(const Dashboard& dashboard) {
    std::map<std::string, std::string> choices = {{"__rate_interval", "1m"}};
    static const std::regex query(R"(label_values\((.*), (\w+)\))");
    for (const json& variable : dashboard.document["templating"]["list"]) {
      if (variable["type"] != "query") continue;
      const std::string text = With(choices, variable["query"]["query"]);
      std::smatch parts;
      EXPECT_TRUE(std::regex_match(text, parts, query)) << text;
      if (parts.empty()) continue;
      std::vector<std::string> values;
      Eventually([&] { return !(values = prometheus_->LabelValues(parts[1], parts[2])).empty(); });
      EXPECT_THAT(values, Not(IsEmpty())) << dashboard.file << ": nothing to choose from for " << variable["name"];
      if (values.empty()) continue;
      std::string& choice = choices[variable["name"]];
      choice = values.front();
      if (variable.value("includeAll", false)) choice = variable.value("allValue", absl::StrCat("(", absl::StrJoin(values, "|"), ")"));
    }
    return choices;
  }
  static std::string With(const std::map<std::string, std::string>& choices, std::string text) {
    for (const auto& [name, value] : choices) text = absl::StrReplaceAll(text, {{absl::StrCat("$", name), value}});
    return text;
  }

  static Operator* operator_;
  static Exporters* run_;
  static Prometheus* prometheus_;
};

Operator* QueriesTest::operator_ = nullptr;
Exporters* QueriesTest::run_ = nullptr;
Prometheus* QueriesTest::prometheus_ = nullptr;

TEST_F(QueriesTest, EveryTargetIsScraped) {
  EXPECT_TRUE(Eventually([] { return Numbers("up == 1").size() == 5; })) << prometheus_->Log();
}

// Beyond what a scraper takes: a help for each family, units and endings as Prometheus names them.
TEST_F(QueriesTest, PromtoolFindsNothingToComplainOfOnAnyPage) {
  if (FindPromtool().empty()) {
    ASSERT_FALSE(PrometheusIsRequired()) << kNoPrometheus;
    GTEST_SKIP() << kNoPrometheus;
  }
  base::TempFolder folder;
  for (const std::string& address : {operator_->metrics(), run_->broker(), run_->executor()}) {
    const std::string body = daemon::HttpGet(address, "/metrics").body;
    EXPECT_THAT(body, ::testing::HasSubstr("fusionllm_build_info")) << address;
    const std::string page = folder.Write("page", body);
    Child promtool("/bin/sh", {"-c", R"(exec "$0" check metrics < "$1")", FindPromtool(), page});
    promtool.WaitForLine([](const std::string&) { return false; }, absl::Minutes(2));
    const std::string said = promtool.Output();
    EXPECT_EQ(promtool.Wait(), 0) << address << "\n" << said;
  }
}

// What the table lists and no page of a program that does its work shows is told by nobody.
TEST_F(QueriesTest, TheOperatorTellsWhatTheTableSaysOfIt) {
  const std::set<std::string> listed = DocumentedFamilies("operator");
  EXPECT_THAT(listed, Not(IsEmpty()));
  std::set<std::string> exported;
  const bool all = Eventually([&] {
    exported.clear();
    for (const absl::string_view line : absl::StrSplit(daemon::HttpGet(operator_->metrics(), "/metrics").body, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() == 4 && words[1] == "TYPE") exported.insert(words[2]);
    }
    return std::includes(exported.begin(), exported.end(), listed.begin(), listed.end());
  });
  if (!all) {
    EXPECT_THAT(exported, ::testing::IsSupersetOf(listed));
  }
  EXPECT_THAT(exported, ::testing::IsSubsetOf(listed)) << "docs/reference/metrics.md";
}

TEST_F(QueriesTest, EveryPanelHasSomethingToShow) {
  for (const Dashboard& dashboard : Dashboards()) {
    const std::map<std::string, std::string> choices = Choices(dashboard);
    for (const json& panel : dashboard.Panels()) {
      for (const json& target : panel["targets"]) {
        const std::string expression = With(choices, target["expr"]);
        // $1 is of label_replace().
        EXPECT_FALSE(std::regex_search(expression, std::regex(R"(\$[^0-9])"))) << "a variable without a value: " << expression;
        EXPECT_TRUE(Answers(expression)) << dashboard.file << ": " << panel["title"] << ": no answer to " << expression;
      }
    }
  }
}

TEST_F(QueriesTest, LegendsAndColumnsNameLabelsThatThereAre) {
  static const std::regex mention(R"(\{\{(\w+)\}\})");
  for (const Dashboard& dashboard : Dashboards()) {
    const std::map<std::string, std::string> choices = Choices(dashboard);
    for (const json& panel : dashboard.Panels()) {
      std::set<std::string> columns;
      for (const json& target : panel["targets"]) {
        std::set<std::string> labels;
        ASSERT_TRUE(Answers(With(choices, target["expr"])));
        for (const json& sample : prometheus_->Query(With(choices, target["expr"]))) {
          for (const auto& [label, value] : sample["metric"].items()) labels.insert(label);
        }
        columns.insert(labels.begin(), labels.end());
        const std::string legend = target.value("legendFormat", "");
        for (std::sregex_iterator at(legend.begin(), legend.end(), mention), end; at != end; ++at) {
          EXPECT_THAT(labels, Contains((*at)[1].str())) << dashboard.file << ": " << panel["title"] << ": " << legend;
        }
      }
      if (panel["type"] != "table") continue;
      for (const json& step : panel["transformations"]) {
        if (step["id"] != "organize") continue;
        for (const auto& [from, to] : step["options"]["renameByName"].items()) {
          if (!absl::StartsWith(from, "Value #")) {
            EXPECT_THAT(columns, Contains(from)) << dashboard.file << ": " << panel["title"];
          }
        }
      }
    }
  }
}

TEST_F(QueriesTest, EveryRuleIsEvaluated) {
  std::map<std::string, std::string> health;  // "ok", or what is wrong
  ASSERT_TRUE(Eventually([&] {
    bool all = true;
    const json rules = prometheus_->Get("rules");
    for (const json& group : rules["groups"]) {
      for (const json& rule : group["rules"]) {
        health[rule["name"]] = absl::StrCat(rule["health"].get<std::string>(), rule.value("lastError", ""));
        all = all && rule["health"] != "unknown";
      }
    }
    return all && !health.empty();
  }));
  for (const Rule& rule : Rules()) {
    EXPECT_EQ(health[rule.name], "ok");
    if (!rule.alert) {
      EXPECT_TRUE(Answers(rule.name)) << "recorded, and nothing came of it: " << rule.expr;
    }
  }
}

// An alert that is silent because it looks at nothing would be silent for ever.
TEST_F(QueriesTest, EveryAlertLooksAtSeriesThatThereAre) {
  for (const Rule& rule : Rules()) {
    for (const Selector& selector : Selectors(rule.expr)) {
      EXPECT_TRUE(Eventually([&] { return !prometheus_->Query(selector.text).empty(); })) << rule.name << ": no series " << selector.text;
    }
  }
}

// The tests of rules/*.test.yaml are about series that are written there by hand: they must be those that there are.
TEST_F(QueriesTest, RulesAreTestedWithSeriesAsTheyAre) {
  std::map<std::string, std::set<std::string>> labels_of;
  static const std::regex label(R"((\w+)=")");
  for (const std::string& file : RuleTestFiles()) {
    const YAML::Node document = YAML::LoadFile(file);
    for (const YAML::Node& test : document["tests"]) {
      for (const YAML::Node& input : test["input_series"]) {
        const std::string series = input["series"].as<std::string>();
        const std::string metric = series.substr(0, series.find('{'));
        if (!labels_of.contains(metric)) {
          EXPECT_TRUE(Eventually([&] { return !prometheus_->Query(metric).empty(); })) << metric;
          for (const json& sample : prometheus_->Query(metric)) {
            for (const auto& [name, value] : sample["metric"].items()) labels_of[metric].insert(name);
          }
        }
        for (std::sregex_iterator at(series.begin(), series.end(), label), end; at != end; ++at) {
          EXPECT_THAT(labels_of[metric], Contains((*at)[1].str())) << series;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::monitoring
