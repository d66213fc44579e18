// Options that hold what they cannot mean: each ends the command with exit code 2 and a sentence that names the option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct BadOption {
  const char* name;
  const char* arguments;
  const char* option;
  const char* why;
};

class OptionChecksTest : public ::testing::TestWithParam<BadOption> {};

TEST_P(OptionChecksTest, IsRefusedByName) {
  const Fusionctl fusionctl;
  const Outcome outcome = fusionctl.Run(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(GetParam().option), HasSubstr(GetParam().why)));
}

constexpr char kGridOnly[] = "is read with --objective dt-fm alone";
constexpr char kJobOnly[] = "is not read with --objective dt-fm";

INSTANTIATE_TEST_SUITE_P(
    Options, OptionChecksTest,
    ::testing::Values(
        BadOption{"SiteThatIsNoName", "join run --token x --site a/b", "--site", "is no name of a site"},
        BadOption{"EmptySite", "join run --token x --site ''", "--site", "is no name of a site"},
        BadOption{"NegativeSeed", "plan job.yaml --seed -1", "--seed", "is not a whole number"},
        BadOption{"SeedOf65Bits", "plan job.yaml --seed 18446744073709551616", "--seed", "is not a whole number"},
        BadOption{"FractionalSeed", "plan job.yaml --seed 1.5", "--seed", "is not a whole number"},
        BadOption{"SeedOfSimulate", "simulate job.yaml --topology t.yaml --seed -1", "--seed", "is not a whole number"},
        BadOption{"StepsLeftOfNothing", "plan job.yaml --steps-left 5", "--steps-left", "--running"},
        BadOption{"LeastGainOfNothing", "plan job.yaml --min-improvement 0.1", "--min-improvement", "--running"},
        BadOption{"StepSecondsNan", "plan job.yaml --running p.json --step-seconds nan", "--step-seconds", "not a finite number"},
        BadOption{"MoveSecondsInfinite", "plan job.yaml --running p.json --move-seconds inf", "--move-seconds", "not a finite number"},
        BadOption{"MoveSecondsNegative", "plan job.yaml --running p.json --move-seconds -1", "--move-seconds", "at least 0"},
        BadOption{"LeastGainNan", "plan job.yaml --running p.json --min-improvement nan", "--min-improvement", "not a finite number"},
        BadOption{"NetworkWithoutObjective", "plan job.yaml --network n.json", "--network", kGridOnly},
        BadOption{"ScoreWithoutObjective", "plan job.yaml --score grid.json", "--score", kGridOnly},
        BadOption{"JobWithGrid", "plan job.yaml --objective dt-fm --network n.json", "JOB", kJobOnly},
        BadOption{"TopologyWithGrid", "plan --objective dt-fm --network n.json --topology t.yaml", "--topology", kJobOnly},
        BadOption{"RunningWithGrid", "plan --objective dt-fm --network n.json --running p.json", "--running", kJobOnly},
        BadOption{"JitterNan", "simulate job.yaml --topology t.yaml --jitter nan", "--jitter", "not a finite number"},
        BadOption{"TimelineOfAnotherKind", "simulate job.yaml --topology t.yaml --timeline a.png", "--timeline",
                  "files end in .svg or .json"},
        BadOption{"UnknownSchedule", "simulate job.yaml --topology t.yaml --schedule zigzag", "--schedule",
                  "there are gpipe, 1f1b, 1f1b-split, interleaved and interleaved:VIRTUAL_STAGES"},
        BadOption{"ScheduleOfNoStages", "simulate job.yaml --topology t.yaml --schedule interleaved:x", "--schedule",
                  "no schedule 'interleaved:x'"},
        BadOption{"ScheduleOfOneVirtualStage", "simulate job.yaml --topology t.yaml --schedule interleaved:1", "--schedule",
                  "1 virtual stages: must lie between 2 and 64"},
        BadOption{"NoSimulatedSteps", "simulate job.yaml --topology t.yaml --steps 0", "--steps", "not in range"},
        BadOption{"NoJob", "run", "fusionctl run: JOB is required; see fusionctl run --help", ""},
        BadOption{"MisspeltOption", "run job.yaml --devce cpu", "fusionctl run: no option '--devce'", "did you mean --device;"},
        BadOption{"FieldAsAnOption", "run job.yaml --lr 0.1", "fusionctl run: no option '--lr'",
                  "--set spec.training.steps=50: did you mean spec.training.optimizer.learningRate?"},
        BadOption{"CommandThatWouldGenerate", "sample runs/a", "fusionctl: no command 'sample': there is none yet",
                  "export the checkpoint"},
        BadOption{"CommandThatWouldCompare", "compare a b", "runs are compared by the events.jsonl", "docs/reference/events.md"},
        BadOption{"CommandThatWouldPredict", "generate", "there is none yet that generates text", "use transformers"},
        BadOption{"MisspeltCommand", "rnu job.yaml", "fusionctl: no command 'rnu'", "did you mean run? there are init, run, "},
        BadOption{"UnknownOption", "run job.yaml --zigzag=3", "fusionctl run: no option '--zigzag'", "fusionctl run --help lists them"},
        BadOption{"OptionBeforeItsCommand", "--topology t.yaml run job.yaml", "fusionctl run: --topology stands before", "write it behind"},
        BadOption{"NoOptionAndNoCommand", "-v", "fusionctl: no option '-v'", "fusionctl --help lists them"},
        BadOption{"DashesAlone", "run job.yaml ---", "fusionctl run: no option '---'", "--help"},
        BadOption{"OneWordTooMany", "run job.yaml again", "fusionctl run: 'again' was not expected", "--help"},
        BadOption{"OneSetForTwoFields", "run job.yaml --set spec.training.steps=5 spec.training.seed=10000",
                  "fusionctl run: 'spec.training.seed=10000' was not expected",
                  "write --set before each: --set spec.training.steps=5 --set spec.training.seed=10000"},
        BadOption{"OneSetForTwoFieldsBeforeTheJob", "run --set spec.training.steps=5 spec.training.seed=10000 job.yaml",
                  "'spec.training.seed=10000' is no job file", "write --set before each field: --set spec.training.seed=10000"},
        BadOption{"OneSetForTwoFieldsOfAPlan", "plan --set a=1 b=2", "'b=2' is no job file", "--set b=2"},
        BadOption{"ResumeAsAnOption", "run job.yaml --resume", "fusionctl run: no option '--resume'",
                  "started again with the same --output"},
        BadOption{"ResumeWithAPath", "run job.yaml --resume_from_checkpoint=runs/a", "no option '--resume_from_checkpoint'",
                  "same --output"},
        BadOption{"TrainAsACommand", "train job.yaml", "fusionctl: no command 'train'", "did you mean run? there are"},
        BadOption{"EvaluateAsACommand", "evaluate runs/a", "fusionctl: no command 'evaluate'", "did you mean eval? there are"},
        BadOption{"ExportAsACommand", "export runs/a", "fusionctl: no command 'export'", "did you mean checkpoint export? there are"},
        BadOption{"EmptyToken", "join 127.0.0.1:0 --token ''", "--token", "`fusionctl run --listen` printed one"},
        BadOption{"NoToken", "join 127.0.0.1:0", "no token: `fusionctl run --listen` printed one",
                  "FUSIONLLM_JOIN_TOKEN, which is not set"},
        BadOption{"PresetOfAnotherFamily", "init --family resnet --preset small", "--preset small: family resnet has 18, 34, 50, 101, 152",
                  ""},
        BadOption{"UnknownPreset", "init text.txt --preset smal", "--preset smal: family gpt2 has tiny, small", "did you mean small?"},
        BadOption{"PresetOfAFamilyWithoutAny", "init --family mlp --preset small", "--preset small: family mlp has no presets", "layers"},
        BadOption{"EffortOfAnotherKind", "plan job.yaml --effort some", "--effort", "some not in {quick,full}"},
        BadOption{"DemoSecondsNan", "demo --seconds nan", "--seconds", "not a finite number"},
        BadOption{"DemoSecondsZero", "demo --seconds 0", "--seconds", "above 0"},
        BadOption{"ClusterOfNoName", "cluster add Paris --member-context m", "NAME", "is no name"},
        BadOption{"ClusterOfALongName", "cluster add paris-north-station-1 --member-context m", "NAME", "up to 20"},
        BadOption{"ClusterWithoutMember", "cluster add paris", "--member-context", "required"},
        BadOption{"ClusterWaitNan", "cluster add paris --member-context m --wait-seconds nan", "--wait-seconds", "not a finite number"},
        BadOption{"ClusterNamespace", "cluster add paris --member-context m --namespace a/b", "--namespace", "is no name"},
        BadOption{"RemoveClusterOfNoName", "cluster remove Paris", "NAME", "is no name"},
        BadOption{"RemoveClusterWithoutKubeconfig", "cluster remove paris --kubeconfig none.yaml", "none.yaml", ""},
        BadOption{"ClusterWithoutKubeconfig", "cluster add paris --kubeconfig none.yaml --member-context m", "none.yaml", ""},
        BadOption{"DevicesWithAGap", "run job.yaml --device cpu,,cpu", "--device", "entry 2 of 'cpu,,cpu' is empty"},
        BadOption{"DevicesThatEndInAComma", "run job.yaml --device cpu,", "--device", "entry 2 of 'cpu,' is empty"},
        BadOption{"NoDevice", "run job.yaml --device ''", "--device", "entry 1 of '' is empty"},
        BadOption{"UnknownDevice", "run job.yaml --device cpu,gpu", "--device", "'gpu' is no device"},
        BadOption{"GatherSecondsOfAges", "run job.yaml --join-timeout-seconds 1e300", "--join-timeout-seconds", "not in range"},
        BadOption{"DemoSecondsOfAges", "demo --seconds 1e300", "--seconds", "not in range"},
        BadOption{"GatherSecondsNan", "run job.yaml --join-timeout-seconds nan", "--join-timeout-seconds", "not a finite number"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(FormerOptionsTest, AreReadWithTheNameOfToday) {
  const Outcome outcome = Fusionctl().Run("run job.yaml --gather-seconds=nan");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("warning: --gather-seconds is called --join-timeout-seconds now"), HasSubstr("not a finite number")));
}

TEST(FormerOptionsTest, AreReadBehindOptionsOfTheProgram) {
  for (const char* before : {"--format json --log-level error", "--format=json"}) {
    const Outcome outcome = Fusionctl().Run(absl::StrCat(before, " run job.yaml --gather-seconds=nan"));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("--gather-seconds is called --join-timeout-seconds now")) << before;
  }
}

TEST(FormerOptionsTest, AreUnknownToCommandsThatNeverHadThem) {
  const Outcome outcome = Fusionctl().Run("demo --fastest");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no option '--fastest'"), Not(HasSubstr("is called"))));
}

}  // namespace
}  // namespace fusionllm::cli
