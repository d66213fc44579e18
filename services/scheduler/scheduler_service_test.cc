#include "services/scheduler/scheduler_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/job/parse.h"
#include "lib/plan/plan.h"
#include "lib/planning/calibrate.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/profile_json.h"
#include "lib/wire/replan_json.h"
#include "lib/workload/workload.h"
#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: mlp, config: {layers: [192, 16, 16, 10]}}
  data: {kind: shapes, shapes: {imageSize: 8}}
  training: {steps: 5, globalBatchSize: 8, microBatchSize: 2}
)";

class SchedulerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    stub_ = v1::Scheduler::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override { server_->Shutdown(); }

  // `devices` devices whose every op takes a millisecond.
  static v1::PlanRequest Request(const std::string& job_document = kJob, int devices = 2) {
    const auto job = job::ParseFusionJob(job_document, "job");
    EXPECT_TRUE(job.ok()) << job.status();
    const auto workload = workload::Resolve(*job, "/");
    EXPECT_TRUE(workload.ok()) << workload.status();
    const auto backend = *kernels::CreateBackend("ref", {});
    auto device = planning::Calibrate(**workload, *backend, {.seconds = 0, .min_passes = 1});
    EXPECT_TRUE(device.ok()) << device.status();
    for (auto& [signature, op] : device->ops) op.seconds = 1e-3;
    device->memory_bytes = 1 << 30;
    wire::ProfilesDocument profiles;
    for (int d = 0; d < devices; ++d) {
      device->name = "a-" + std::to_string(d);
      device->site = "a";
      for (const wire::DeviceProfile& other : profiles.devices) {
        profiles.links.push_back({device->name, other.name, 1e-4, 1e8});
        profiles.links.push_back({other.name, device->name, 1e-4, 1e8});
      }
      profiles.devices.push_back(*device);
    }
    v1::PlanRequest request;
    request.set_job_document(job_document);
    request.set_profiles_document(wire::PrintProfiles(profiles));
    return request;
  }

  // Takes minutes to plan unless it is stopped.
  static v1::PlanRequest HugeRequest() {
    std::string layers = "192";
    for (int layer = 0; layer < 120; ++layer) layers += ", 16";
    std::string job = kJob;
    job.replace(job.find("192, 16, 16"), 11, layers);
    job.replace(job.find("globalBatchSize: 8"), 18, "globalBatchSize: 8192");
    v1::PlanRequest request = Request(job, 30);  // more than 31 are refused at once
    request.set_strategy("exact");
    return request;
  }

  // Only the client hears of an end by the deadline or by itself: the search must not go on without it.
  void AwaitSearches(int count) {
    while (service_.searching() != count) std::this_thread::yield();
  }

  grpc::Status Call(const v1::PlanRequest& request, v1::PlanResponse& response,
                    std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return stub_->Plan(&context, request, &response);
  }

  // The four questions about the same job; `plan_document`: a plan of it.
  struct Question {
    std::string name;
    std::function<grpc::Status(grpc::ClientContext&)> ask;
  };
  std::vector<Question> Questions(const v1::PlanRequest& plan, const std::string& plan_document) {
    v1::ReplanRequest replan;
    *replan.mutable_now() = plan;
    replan.set_running_document(plan_document);
    replan.set_steps_left(100);
    v1::ExplainRequest explain;
    *explain.mutable_plan() = plan;
    explain.set_plan_document(plan_document);
    v1::SimulateRequest simulate;
    *simulate.mutable_plan() = plan;
    return {{"Plan",
             [this, plan](grpc::ClientContext& context) {
               v1::PlanResponse response;
               return stub_->Plan(&context, plan, &response);
             }},
            {"Replan",
             [this, replan](grpc::ClientContext& context) {
               v1::ReplanResponse response;
               return stub_->Replan(&context, replan, &response);
             }},
            {"Explain",
             [this, explain](grpc::ClientContext& context) {
               v1::ExplainResponse response;
               return stub_->Explain(&context, explain, &response);
             }},
            {"Simulate", [this, simulate](grpc::ClientContext& context) {
               v1::SimulateResponse response;
               return stub_->Simulate(&context, simulate, &response);
             }}};
  }
  static grpc::Status Ask(const Question& question, std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return question.ask(context);
  }
  std::string PlanOf(v1::PlanRequest request) {
    request.set_strategy("equal-ops");
    v1::PlanResponse response;
    EXPECT_TRUE(Call(request, response).ok());
    return response.plan_document();
  }

  // How often a call ended so, as exported.
  int Ended(const std::string& outcome) {
    const std::string series = "fusionllm_plans_total{outcome=\"" + outcome + "\"} ";
    const std::string text = registry_.Text();
    const size_t at = text.find(series);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + series.size()));
  }

  metrics::Registry registry_{"test", "0"};
  const PlanMetrics plan_metrics_{registry_};
  SchedulerService service_{plan_metrics_, {.max_concurrent = 1}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Scheduler::Stub> stub_;
};

TEST_F(SchedulerServiceTest, AnswersWithAPlanDocument) {
  v1::PlanRequest request = Request();
  request.set_strategy("equal-ops");
  v1::PlanResponse response;
  const grpc::Status status = Call(request, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto answer = wire::ParsePlan(response.plan_document());
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto& plan = std::get<plan::Plan>(*answer);
  EXPECT_EQ(plan.strategy, "equal-ops");
  EXPECT_EQ(plan.stages.size(), 2);
}

TEST_F(SchedulerServiceTest, SaysWhetherToLeaveARunningPlan) {
  v1::ReplanRequest request;
  *request.mutable_now() = Request();
  v1::PlanResponse plan;
  ASSERT_TRUE(Call(request.now(), plan).ok());
  request.set_running_document(plan.plan_document());
  request.set_steps_left(100);
  const auto ask = [&](v1::ReplanResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub_->Replan(&context, request, &response);
  };
  v1::ReplanResponse response;
  grpc::Status status = ask(response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto answer = wire::ParseReplan(response.replan_document());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::get<wire::ReplanDocument>(*answer).decision, wire::ReplanDecision::kStay);

  request.set_steps_left(-1);
  status = ask(response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("steps_left"));
  request.set_running_document("{}");
  status = ask(response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("plan."));
}

TEST_F(SchedulerServiceTest, ExplainsAPlan) {
  v1::ExplainRequest request;
  *request.mutable_plan() = Request();
  v1::PlanResponse plan;
  ASSERT_TRUE(Call(request.plan(), plan).ok());
  request.set_plan_document(plan.plan_document());
  v1::ExplainResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const grpc::Status status = stub_->Explain(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_GT(response.sentences_size(), 0);
  EXPECT_THAT(response.sentences(0), HasSubstr("stage 0: a-"));
  EXPECT_THAT(response.sentences(), ::testing::Contains(HasSubstr("can take less than")));
}

TEST_F(SchedulerServiceTest, RefusalIsAnAnswerNotAnError) {
  v1::PlanRequest request = Request();
  request.add_exclude("a-0");
  request.add_exclude("a-1");
  v1::PlanResponse response;
  ASSERT_TRUE(Call(request, response).ok());
  const auto answer = wire::ParsePlan(response.plan_document());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::get<plan::PlanError>(*answer).reason, "NoExecutors");
  EXPECT_EQ(Ended("refused"), 1);
  EXPECT_EQ(Ended("planned"), 0);
}

TEST_F(SchedulerServiceTest, MalformedDocumentsAreInvalidArguments) {
  v1::PlanResponse response;
  v1::PlanRequest bad_job = Request(), bad_profiles = Request(), bad_strategy = Request();
  bad_job.set_job_document("kind: Bread");
  bad_profiles.set_profiles_document("{\"devices\":[{}],\"links\":[]}");
  bad_strategy.set_strategy("guess");
  const std::vector<std::pair<v1::PlanRequest, std::string>> cases = {
      {bad_job, "job_document:1"}, {bad_profiles, "profiles.devices[0].name"}, {bad_strategy, "op-fence"}};
  for (const auto& [request, message] : cases) {
    const grpc::Status status = Call(request, response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
}

TEST_F(SchedulerServiceTest, SimulatesWhatItPlans) {
  v1::SimulateRequest request;
  *request.mutable_plan() = Request();
  request.mutable_plan()->set_strategy("equal-ops");
  request.add_what_if("device:a-1.straggler=3");
  request.add_what_if("device:a-1=absent");
  request.set_jitter(0.1);
  request.set_steps(20);
  request.set_noise_seed(4);
  const auto simulate = [&](v1::SimulateResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub_->Simulate(&context, request, &response);
  };
  v1::SimulateResponse response;
  grpc::Status status = simulate(response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.simulation_document(), ::testing::AllOf(HasSubstr("\"spread\":{"), HasSubstr("runs on a-1, which is absent")));
  request.clear_what_if();
  request.set_jitter(0);
  request.set_steps(0);
  ASSERT_TRUE(simulate(response).ok());
  const auto document = nlohmann::json::parse(response.simulation_document());
  EXPECT_EQ(document["step_seconds"], document["predicted_step_seconds"]);
  EXPECT_FALSE(document.contains("spread"));
  request.set_topology_document(
      "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n"
      "  sites: [{name: x, devices: [{name: x-0, computeScale: 0.5}, {name: x-1}]}]\n");
  ASSERT_TRUE(simulate(response).ok());
  EXPECT_THAT(response.simulation_document(), HasSubstr("\"device\":\"x-0\""));
  request.add_what_if("device:a-0=absent");
  status = simulate(response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::AllOf(HasSubstr("a-0"), HasSubstr("x-0, x-1")));
  request.set_topology_document("kind: Bread");
  EXPECT_THAT(simulate(response).error_message(), HasSubstr("topology_document:1"));
}

TEST_F(SchedulerServiceTest, ASimulationEndsWhenItsCallerHangsUp) {
  v1::SimulateRequest request;
  *request.mutable_plan() = HugeRequest();
  grpc::ClientContext context;
  v1::SimulateResponse response;
  std::thread caller([&] { EXPECT_EQ(stub_->Simulate(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED); });
  AwaitSearches(1);
  context.TryCancel();
  caller.join();
  while (Ended("cancelled") == 0) std::this_thread::yield();
  EXPECT_EQ(service_.searching(), 0);
}

TEST_F(SchedulerServiceTest, CallsBeyondTheLimitAreTurnedAwayAndServedLater) {
  const v1::PlanRequest request = Request();
  std::atomic<int> planned = 0, busy = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      v1::PlanResponse response;
      while (true) {
        const grpc::Status status = Call(request, response);
        if (status.ok()) break;
        ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
        ++busy;
      }
      ++planned;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(planned, 8);
  EXPECT_EQ(Ended("planned"), 8);
  EXPECT_EQ(Ended("busy"), busy);
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_plan_seconds_count 8\n"));
}

TEST_F(SchedulerServiceTest, APassedDeadlineEndsTheCall) {
  v1::PlanResponse response;
  EXPECT_EQ(Call(Request(), response, std::chrono::milliseconds(-1)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(SchedulerServiceTest, ASearchEndsWithItsDeadline) {
  v1::PlanResponse response;
  const v1::PlanRequest request = HugeRequest();
  // The service hears of the end by its own clock or from the client, whichever is first; on a busy machine not even of the beginning.
  while (Ended("deadline_exceeded") + Ended("cancelled") == 0) {
    if (service_.searching() > 0) continue;
    const grpc::StatusCode code = Call(request, response, std::chrono::milliseconds(50)).error_code();
    // The caller may hear of the end of a search before the service has made room for the next.
    if (code != grpc::StatusCode::RESOURCE_EXHAUSTED) {
      EXPECT_EQ(code, grpc::StatusCode::DEADLINE_EXCEEDED);
    }
  }
  AwaitSearches(0);
}

TEST_F(SchedulerServiceTest, ASearchEndsWhenItsCallerHangsUp) {
  const v1::PlanRequest request = HugeRequest();
  grpc::ClientContext context;
  v1::PlanResponse response;
  std::thread caller([&] { EXPECT_EQ(stub_->Plan(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED); });
  AwaitSearches(1);
  context.TryCancel();
  caller.join();
  while (Ended("cancelled") == 0) std::this_thread::yield();
  EXPECT_EQ(service_.searching(), 0);
}

TEST_F(SchedulerServiceTest, ASearchEndsWhenTheServiceStops) {
  const v1::PlanRequest request = HugeRequest();
  std::thread caller([&] {
    v1::PlanResponse response;
    const grpc::Status status = Call(request, response, std::chrono::hours(1));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("stopping"));
  });
  AwaitSearches(1);
  service_.Stop();
  caller.join();
  EXPECT_EQ(Ended("stopping"), 1);
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_plans_in_flight 0\n"));
}

TEST_F(SchedulerServiceTest, EveryQuestionIsAnsweredWithinItsDeadlineOrNotAtAll) {
  const v1::PlanRequest request = Request();
  const std::string plan = PlanOf(request);
  for (const Question& question : Questions(request, plan)) {
    SCOPED_TRACE(question.name);
    EXPECT_TRUE(Ask(question).ok());
    EXPECT_EQ(Ask(question, std::chrono::milliseconds(-1)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
}

TEST_F(SchedulerServiceTest, CancelledCallEndsItsSearch) {
  const v1::PlanRequest request = HugeRequest();
  const Question replan = Questions(request, PlanOf(request))[1];
  grpc::ClientContext context;
  std::thread caller([&] { EXPECT_EQ(replan.ask(context).error_code(), grpc::StatusCode::CANCELLED); });
  AwaitSearches(1);
  context.TryCancel();
  caller.join();
  while (Ended("cancelled") == 0) std::this_thread::yield();
  EXPECT_EQ(service_.searching(), 0);
}

TEST_F(SchedulerServiceTest, EveryQuestionIsTurnedAwayWhileThePlaceIsTaken) {
  const v1::PlanRequest request = Request();
  const std::string plan = PlanOf(request);
  const v1::PlanRequest huge = HugeRequest();
  grpc::ClientContext context;
  v1::PlanResponse response;
  std::thread caller([&] { EXPECT_EQ(stub_->Plan(&context, huge, &response).error_code(), grpc::StatusCode::CANCELLED); });
  AwaitSearches(1);
  for (const Question& question : Questions(request, plan)) {
    const grpc::Status status = Ask(question);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << question.name;
    EXPECT_THAT(status.error_message(), HasSubstr("busy with 1 plans"));
  }
  context.TryCancel();
  caller.join();
}

TEST_F(SchedulerServiceTest, EveryQuestionIsTurnedAwayByAServiceThatStops) {
  const v1::PlanRequest request = Request();
  const std::string plan = PlanOf(request);
  service_.Stop();
  for (const Question& question : Questions(request, plan)) {
    EXPECT_EQ(Ask(question).error_code(), grpc::StatusCode::UNAVAILABLE) << question.name;
  }
}

TEST_F(SchedulerServiceTest, WhateverIsAskedMalformedDocumentsAreNamed) {
  const v1::PlanRequest request = Request();
  const std::string plan = PlanOf(request);
  v1::PlanRequest bad_job = request, bad_profiles = request, deep_profiles = request;
  bad_job.set_job_document("kind: Bread");
  bad_profiles.set_profiles_document("{\"devices\":[{}],\"links\":[]}");
  deep_profiles.set_profiles_document(std::string(1 << 20, '['));
  for (const auto& [bad, says] :
       {std::pair(bad_job, "job_document:1"), std::pair(bad_profiles, "profiles.devices[0].name"), std::pair(deep_profiles, "profiles")}) {
    for (const Question& question : Questions(bad, plan)) {
      const grpc::Status status = Ask(question);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << question.name;
      EXPECT_THAT(status.error_message(), HasSubstr(says)) << question.name;
    }
  }
  for (const char* document : {"", "{}", "[]", "null", R"({"stages":[]})",
                               R"({"refused":{"reason":"NoExecutors","message":"","shortfall":{"what":"","needed":0,"available":0}}})"}) {
    for (const int q : {1, 2}) {  // those who speak of a plan
      const Question question = Questions(request, document)[q];
      EXPECT_EQ(Ask(question).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << question.name << " " << document;
    }
  }
}

TEST_F(SchedulerServiceTest, NumbersBeyondReasonAreNamed) {
  const v1::PlanRequest plan = Request();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto simulated = [&](const std::function<void(v1::SimulateRequest&)>& change) {
    v1::SimulateRequest request;
    *request.mutable_plan() = plan;
    change(request);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::SimulateResponse response;
    const grpc::Status status = stub_->Simulate(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  EXPECT_THAT(simulated([&](auto& r) { r.set_jitter(nan); }), HasSubstr("jitter"));
  EXPECT_THAT(simulated([&](auto& r) { r.set_steps(1'000'000'000); }), HasSubstr("steps"));
  EXPECT_THAT(simulated([&](auto& r) { r.set_steps(-1); }), HasSubstr("steps"));
  EXPECT_THAT(simulated([&](auto& r) { r.add_straggler("a-0:nan"); }), HasSubstr("straggler"));
  EXPECT_THAT(simulated([&](auto& r) { r.set_schedule("sideways"); }), HasSubstr("sideways"));
  EXPECT_THAT(simulated([&](auto& r) {
                for (int i = 0; i < 1'000; ++i) r.add_what_if("device:a-0=absent");
              }),
              HasSubstr("what-ifs"));
  v1::ReplanRequest replan;
  *replan.mutable_now() = plan;
  replan.set_running_document(PlanOf(plan));
  replan.set_steps_left(100);
  replan.set_running_step_seconds(nan);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::ReplanResponse response;
  EXPECT_EQ(stub_->Replan(&context, replan, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchedulerServiceTest, AMessageBeyondTheLimitIsNotRead) {
  v1::PlanRequest request;
  request.set_job_document(kJob);
  request.set_profiles_document(std::string(static_cast<size_t>(kMaxMessageBytes) + 1, ' '));
  for (const Question& question : Questions(request, "{}")) {
    EXPECT_EQ(Ask(question).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << question.name;
  }
  EXPECT_EQ(Ended("busy"), 0) << "no call came as far as the service";
}

}  // namespace
}  // namespace fusionllm::services
