// Machines that join a run: the real programs, as users of two machines call them.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/port_forwarder.h"
#include "lib/security/join_token.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;

TEST_F(JoinTest, TwoMachinesThatOnlyDialOutTrainTheSameLossesAsOneProcess) {
  const auto alone = Alone();
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  ASSERT_THAT(alone->LossBits(), SizeIs(4));

  const auto run = Listen(3);
  const auto first = Join("first", {"--name", "a-laptop"});
  const auto second = Join("second", {});
  ASSERT_EQ(run->Wait(), 0) << run->words() << first->words() << second->words();
  EXPECT_EQ(run->LossBits(), alone->LossBits());
  EXPECT_EQ(first->Wait(), 0) << first->words();
  EXPECT_EQ(second->Wait(), 0) << second->words();
  EXPECT_THAT(second->words(), HasSubstr("as joined-0"));
  EXPECT_THAT(second->words(), ::testing::ContainsRegex("waiting for the other machines \\.\\.\nmeasuring this machine \\.\\.\n(.*\n)*"
                                                        "waiting for a plan with a stage for this machine "
                                                        "\\.\\.\nbuilding stage [12] \\.\\.\ntraining stage [12] \\.\\.\n"));

  const json summary = run->lines().back();
  ASSERT_EQ(summary["type"], "summary");
  ASSERT_THAT(summary["stages"], SizeIs(3));
  EXPECT_EQ(summary["stages"][0]["device"], "local-0") << "the machine with the data, though a-laptop sorts before it";
  EXPECT_GT(summary["wire_bytes"].get<int64_t>(), 0);
  EXPECT_THAT(CredentialFolders(), SizeIs(0)) << "nothing is left of the credentials";
}

TEST_F(JoinTest, AMachineThatCanBeDialledIs) {
  const auto run = Listen(2);
  const auto other = Join("other", {"--name", "server", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << other->words();
  EXPECT_EQ(other->Wait(), 0) << other->words();
  EXPECT_THAT(run->LossBits(), SizeIs(4));
}

// Its own executor is given the address as it is, and whoever joins one of this machine's.
TEST_F(JoinTest, TrainsWithJoinedExecutorsOnWildcardAddress) {
  const auto run = Listen(2, {}, "run", "0.0.0.0:0");
  EXPECT_THAT(address_, Not(HasSubstr("0.0.0.0"))) << "nobody could dial it";
  // Loopback is among all addresses, and there on any machine.
  address_ = absl::StrCat("127.0.0.1", address_.substr(address_.rfind(':')));
  const auto other = Join("other", {});
  ASSERT_EQ(run->Wait(), 0) << run->words() << other->words();
  EXPECT_EQ(other->Wait(), 0) << other->words();
  EXPECT_THAT(run->LossBits(), SizeIs(4));
}

TEST_F(JoinTest, ARunIsJoinedOverAddressesOfIpv6) {
  const auto run = Listen(2, {}, "run", "[::1]:0");
  ASSERT_THAT(address_, HasSubstr("[::1]:"));
  const auto other = Join("other", {"--name", "server", "--listen", "[::1]:0"});
  ASSERT_EQ(run->Wait(), 0) << run->words() << other->words();
  EXPECT_EQ(other->Wait(), 0) << other->words();
  EXPECT_THAT(run->LossBits(), SizeIs(4));
}

// That it is dialled is all that is looked at: this router forwards nothing, so nobody comes through.
TEST_F(JoinTest, TheOthersDialWhatAMachineAdvertises) {
  base::PortForwarder router;
  const auto run = Listen(2);
  const auto other = Join("other", {"--name", "server", "--listen", "0.0.0.0:0", "--advertise", router.address()});
  EXPECT_TRUE(router.WaitForConnection(std::chrono::seconds(120))) << run->words() << other->words();
  run->Interrupt();
  EXPECT_NE(run->Wait(), -1);
  EXPECT_NE(other->Wait(), -1);
}

TEST_F(JoinTest, RejectsUnreachableMachineAndOthersTrain) {
  base::PortForwarder router;  // forwards nothing
  const auto run = Listen(3);
  const auto good = Join("good", {"--name", "good"});
  ASSERT_TRUE(good->WaitForWords("joined the run")) << good->words();
  const auto lost = Join("lost", {"--name", "lost", "--listen", "127.0.0.1:0", "--advertise", router.address()});
  EXPECT_EQ(lost->Wait(), 1) << run->words();
  EXPECT_THAT(lost->words(), HasSubstr(absl::StrCat("rejected: the other machines cannot reach lost at ", router.address())));
  const auto instead = Join("instead", {"--name", "instead"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << good->words();
  EXPECT_EQ(good->Wait(), 0) << good->words();
  EXPECT_EQ(instead->Wait(), 0) << instead->words();
  EXPECT_THAT(run->LossBits(), SizeIs(4));
}

TEST_F(JoinTest, TokensNamesAndAddressesThatAreWrongAreRefusedInWords) {
  const auto run = Listen(3);
  const std::string right = token_;
  const auto refused = [&](const std::string& log, const std::vector<std::string>& more, const std::string& token) {
    const auto begin = Clock::now();
    const auto join = Join(log, more, token);
    EXPECT_EQ(join->Wait(), 2) << log;
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15)) << log;
    EXPECT_THAT(join->words(), Not(HasSubstr(token))) << "a token belongs into no log";
    return join->words();
  };
  const std::string ca = security::ParseJoinToken(right)->ca_pem;
  EXPECT_THAT(refused("guess", {}, *security::MakeJoinToken(*security::MakeJoinSecret(), ca)), HasSubstr("not that of this run"));
  EXPECT_THAT(refused("torn", {}, right.substr(0, right.size() / 2)), HasSubstr("--token"));
  EXPECT_THAT(refused("reserved", {"--name", "broker"}, right), HasSubstr("choose another --name"));
  EXPECT_THAT(refused("local", {"--name", "local-0"}, right), HasSubstr("choose another --name"));
  EXPECT_THAT(refused("any", {"--listen", "0.0.0.0:0"}, right), HasSubstr("stands for any"));
  EXPECT_THAT(refused("nowhere", {"--listen", "127.0.0.1:0", "--advertise", "lab:0"}, right),
              AllOf(HasSubstr("--advertise"), HasSubstr("port 0 cannot be dialed")));
  EXPECT_THAT(refused("deaf", {"--advertise", "lab:7001"}, right), HasSubstr("--listen"));

  const auto first = Join("first", {"--name", "lab"}, right);
  ASSERT_TRUE(first->WaitForWords("joined the run")) << first->words();
  EXPECT_THAT(refused("twice", {"--name", "lab"}, right),
              AnyOf(HasSubstr("an executor called lab is part of this run already"), HasSubstr("the name lab was given to an executor")))
      << "which depends on whether the first has connected by now";

  const std::string here = address_;
  const auto another = Listen(3, {}, "another");
  ASSERT_NE(address_, here);
  EXPECT_THAT(refused("foreign", {}, right), HasSubstr("another authority"));

  for (const auto& process : {&run, &another}) (*process)->Interrupt();
  EXPECT_EQ(run->Wait(), 130);
  EXPECT_EQ(another->Wait(), 130);
  EXPECT_NE(first->Wait(), -1) << "told to go when the run ended";
  EXPECT_THAT(CredentialFolders(), SizeIs(0));
}

TEST_F(JoinTest, AnAddressWithoutABrokerIsReportedAtOnce) {
  const auto run = Listen(2);
  run->Interrupt();
  ASSERT_EQ(run->Wait(), 130);
  const auto join = Join("late", {});
  EXPECT_EQ(join->Wait(), 1);
  EXPECT_THAT(join->words(), HasSubstr(address_));
}

TEST_F(JoinTest, AnInterruptedJoinLeavesTheRunAndNothingBehind) {
  const auto run = Listen(3);
  const auto join = Join("guest", {"--name", "guest"});
  ASSERT_TRUE(join->WaitForWords("joined the run")) << join->words();
  join->Interrupt();
  EXPECT_EQ(join->Wait(), 130);
  EXPECT_THAT(CredentialFolders(), SizeIs(0));
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130);
}

TEST_F(JoinTest, AKilledJoinLeavesItsKeyToTheNextOneToRemove) {
  const auto run = Listen(3);
  const auto doomed = Join("doomed", {"--name", "doomed"});
  ASSERT_TRUE(doomed->WaitForWords("joined the run")) << doomed->words();
  doomed->Kill();
  ASSERT_THAT(CredentialFolders(), SizeIs(1));
  const std::string left = CredentialFolders()[0];
  const auto next = Join("next", {"--name", "next"});
  ASSERT_TRUE(next->WaitForWords("joined the run")) << next->words();
  EXPECT_THAT(CredentialFolders(), AllOf(SizeIs(1), Not(Contains(left))));
  next->Interrupt();
  EXPECT_EQ(next->Wait(), 130);
  EXPECT_THAT(CredentialFolders(), SizeIs(0));
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130);
}

TEST_F(JoinTest, EmulatedLinksAndRealOnesAreNotMixed) {
  folder_.Write("mine/topology.yaml",
                "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: one}\nspec:\n  sites:\n"
                "  - name: here\n    devices: [{name: a}]\n    internal: {bandwidth: 1Gbit, latency: 1ms}\n");
  Fusionctl run(folder_, "refused",
                {"run", job_, "--output", Out("refused"), "--listen", "127.0.0.1:0", "--topology", folder_ / "mine/topology.yaml"});
  EXPECT_EQ(run.Wait(), 2) << run.words();
  EXPECT_THAT(run.words(), HasSubstr("--listen and --topology cannot be combined"));
}

}  // namespace
}  // namespace fusionllm::cli
