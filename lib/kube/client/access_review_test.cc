#include "lib/kube/client/access_review.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/client/testing/pods.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/scripted_transport.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;
using testing::kPods;

const Resource kJobs = {"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};

class AccessReviewTest : public ::testing::Test {
 protected:
  testing::FakeClock clock_;
  const std::shared_ptr<testing::ScriptedTransport> transport_ = std::make_shared<testing::ScriptedTransport>();
  RestClient client_{{transport_, StaticCredentials({}), "host", "default"}, {}, clock_};
};

TEST_F(AccessReviewTest, NamesWhatIsMissing) {
  transport_->Then(201, R"({"status":{"allowed":true}})");
  transport_->Then(201, R"({"status":{"allowed":false,"reason":"no"}})");
  const auto missing = MissingPermissions(client_, {{"create", kPods, "team"}, {"patch", kJobs, "", "status"}});
  ASSERT_TRUE(missing.ok()) << missing.status();
  ASSERT_EQ(missing->size(), 1u);
  EXPECT_EQ((*missing)[0].ToString(), "patch fusionjobs.fusionllm.io/status");
  EXPECT_EQ((Permission{"create", kPods, "team"}).ToString(), "create pods in namespace team");
  const HttpRequest asked = transport_->requests()[0];
  EXPECT_EQ(asked.target, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
  EXPECT_THAT(asked.body, HasSubstr(R"("namespace":"team","resource":"pods","subresource":"","verb":"create")"));
}

TEST_F(AccessReviewTest, AnAnswerThatIsNoneIsNoYes) {
  for (const char* body : {"", "[]", "{}", R"({"status":{"allowed":"true"}})", R"({"status":[]})"}) {
    transport_->Then(201, body);
    EXPECT_EQ(MissingPermissions(client_, {{"create", kPods}}).status().code(), absl::StatusCode::kInternal) << body;
  }
}

TEST_F(AccessReviewTest, WhatCannotBeAskedIsAnError) {
  transport_->Then(401, "");
  transport_->Then(401, "");
  EXPECT_TRUE(absl::IsUnauthenticated(MissingPermissions(client_, {{"create", kPods}}).status()));
}

}  // namespace
}  // namespace fusionllm::kube
