#include "operator/manager/fleet_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::op::manager {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FleetMetricsTest : public ::testing::Test {
 protected:
  void AddJob(const std::string& name, const json& status, const json& spec = {{"executors", {{"replicas", 4}}}}) {
    json object = {{"apiVersion", "fusionllm.io/v1alpha1"},
                   {"kind", "FusionJob"},
                   {"metadata", {{"name", name}, {"namespace", "ml"}, {"uid", name}}},
                   {"spec",
                    {{"model", {{"family", "gpt2"}, {"preset", "tiny"}}},
                     {"data", {{"kind", "text"}, {"path", {"corpus.txt"}}, {"volume", {{"configMap", {{"name", "text"}}}}}}},
                     {"training", {{"steps", 100}}}}},
                   {"status", status}};
    object["spec"].update(spec);
    const auto view = cache::ReadJob(object, "hub", "uid-of-the-hub");
    ASSERT_TRUE(view.ok()) << view.status();
    ASSERT_TRUE(view->job.ok()) << view->job.status();
    jobs_.push_back(std::make_shared<const cache::JobView>(*view));
  }

  std::vector<std::shared_ptr<const cache::JobView>> jobs_;
  std::map<std::string, cache::ConnectionState> clusters_;
  metrics::Registry registry_{"test", "0"};
  FleetMetrics fleet_{registry_, [this] { return jobs_; }, [this] { return clusters_; }};
};

TEST_F(FleetMetricsTest, EveryStateIsCounted) {
  AddJob("a", {{"state", "Running"}});
  AddJob("b", {{"state", "Running"}});
  AddJob("c", json::object());
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("fusionllm_jobs{state=\"Running\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("fusionllm_jobs{state=\"Pending\"} 1\n")) << "nobody has written its status yet";
  for (const char* none : {"Starting", "Restarting", "Suspending", "Suspended", "Complete", "Failed", "Deleting"}) {
    EXPECT_THAT(text, HasSubstr("fusionllm_jobs{state=\"" + std::string(none) + "\"} 0\n"));
  }
}

TEST_F(FleetMetricsTest, AJobHasItsStateRestartsAndExecutors) {
  AddJob("a", {{"state", "Running"}, {"restarts", 2}, {"replicas", 4}, {"readyReplicas", 3}});
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("fusionllm_job_info{job_name=\"a\",job_namespace=\"ml\",state=\"Running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fusionllm_job_restarts{job_name=\"a\",job_namespace=\"ml\"} 2\n"));
  for (const char* executors : {"kind=\"wanted\"} 4\n", "kind=\"active\"} 4\n", "kind=\"ready\"} 3\n"}) {
    EXPECT_THAT(text, HasSubstr("fusionllm_job_executors{job_name=\"a\",job_namespace=\"ml\"," + std::string(executors)));
  }
}

TEST_F(FleetMetricsTest, AJobThatIsOverMissesNoExecutors) {
  AddJob("a", {{"state", "Complete"}, {"completionTime", "2026-01-02T03:04:05Z"}});
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("state=\"Complete\"} 1\n"), Not(HasSubstr("fusionllm_job_executors{"))));
}

TEST_F(FleetMetricsTest, WhatIsGoneHasNoSeries) {
  AddJob("a", {{"state", "Running"}});
  clusters_ = {{"paris", {.connected = true}}};
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("job_name=\"a\""), HasSubstr("fusionllm_cluster_connected{cluster=\"paris\"} 1\n")));
  jobs_.clear();
  clusters_.clear();
  EXPECT_THAT(registry_.Text(), AllOf(Not(HasSubstr("job_name=\"a\"")), Not(HasSubstr("paris"))));
}

TEST_F(FleetMetricsTest, JobsOfOtherOperatorsAreNotOurs) {
  AddJob("a", {{"state", "Running"}}, {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("fusionllm_jobs{state=\"Running\"} 0\n"), Not(HasSubstr("job_name"))));
}

TEST_F(FleetMetricsTest, JobsThatNameThisOperatorAreOurs) {
  AddJob("a", {{"state", "Running"}}, {{"managedBy", "fusionllm.io/fusion-operator"}});
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_jobs{state=\"Running\"} 1\n"));
}

TEST_F(FleetMetricsTest, AClusterIsConnectedOrNot) {
  clusters_ = {{"paris", {.connected = true}}, {"tokyo", {.connected = false, .disconnected_for = absl::Seconds(90)}}};
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("fusionllm_cluster_connected{cluster=\"paris\"} 1\n"),
                                      HasSubstr("fusionllm_cluster_connected{cluster=\"tokyo\"} 0\n"),
                                      HasSubstr("fusionllm_cluster_disconnected_seconds{cluster=\"paris\"} 0\n"),
                                      HasSubstr("fusionllm_cluster_disconnected_seconds{cluster=\"tokyo\"} 90\n")));
}

}  // namespace
}  // namespace fusionllm::op::manager
