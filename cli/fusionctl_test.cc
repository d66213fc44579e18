// The program as users call it: exit codes, what goes to stdout and stderr, and documents that parse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/testing/fusionctl_test.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace fs = std::filesystem;

TEST_F(FusionctlTest, VersionAndHelpAreDoneAndBadUsageIsTwo) {
  EXPECT_EQ(Run("--version").code, 0);
  EXPECT_THAT(Run("--version").out, HasSubstr("fusionctl 0."));
  EXPECT_EQ(Run("--help").code, 0);
  EXPECT_EQ(Run("").code, 2);
  EXPECT_EQ(Run("plan").code, 2);
  EXPECT_EQ(Run("bake job.yaml").code, 2);
  EXPECT_EQ(Run("plan job.yaml --colour red").code, 2);
  EXPECT_EQ(Run("--format xml plan job.yaml").code, 2);
}

TEST_F(FusionctlTest, WordsItDoesNotKnowAreRepeatedWithTheOnesItDoes) {
  EXPECT_THAT(Run("bake job.yaml").err, AllOf(HasSubstr("'bake'"), HasSubstr("run, join")));
  const Outcome level = Run("--log-level loud plan job.yaml");
  EXPECT_EQ(level.code, 2);
  EXPECT_THAT(level.err, AllOf(HasSubstr("--log-level"), HasSubstr("loud"), HasSubstr("{debug,info,warning,error}")));
  EXPECT_THAT(Run("--format xml plan job.yaml").err, AllOf(HasSubstr("--format"), HasSubstr("xml"), HasSubstr("{text,json}")));
  // Before this machine is measured, which takes seconds.
  const Outcome planner = Run("plan job.yaml --strategy guess");
  EXPECT_THAT(planner.err, AllOf(HasSubstr("--strategy"), HasSubstr("guess"), HasSubstr("op-fence"), Not(HasSubstr("measuring"))));
}

// Nothing listens there: that the device is not there is reported before the run is asked.
TEST_F(FusionctlTest, JoinNamesADeviceThatIsNotThereBeforeItDials) {
  const Outcome join = Run("join nowhere --token none --device cuda:999");
  EXPECT_EQ(join.code, 2);
  EXPECT_THAT(join.err, HasSubstr("cuda:999"));
  EXPECT_THAT(join.err, Not(HasSubstr("nowhere")));
}

TEST_F(FusionctlTest, EveryCommandHasHelpWithAnExample) {
  for (const std::string command : {"run", "join", "demo", "plan", "simulate", "graph", "checkpoint", "checkpoint ls", "checkpoint inspect",
                                    "checkpoint verify", "checkpoint export", "eval", "bench", "doctor", "completion"}) {
    const Outcome outcome = Run(command + " --help");
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_THAT(outcome.out, HasSubstr("Example:")) << command;
    EXPECT_THAT(outcome.out, HasSubstr("fusionctl " + command.substr(0, command.find(' ')))) << command;
  }
}

TEST_F(FusionctlTest, ErrorsInAJobNameFileLineAndField) {
  std::string text = kJob;
  text.replace(text.find("steps: 2"), 8, "stpes: 2");
  Write("typo.yaml", text);
  const Outcome typo = Run("plan typo.yaml");
  EXPECT_EQ(typo.code, 2);
  EXPECT_THAT(typo.err, HasSubstr("typo.yaml:7"));
  EXPECT_THAT(typo.err, HasSubstr("spec.training.stpes"));
  EXPECT_EQ(typo.out, "");
  EXPECT_EQ(Run("plan missing.yaml").code, 2);
  const Outcome override = Run("plan job.yaml --set spec.training.steps=-3");
  EXPECT_EQ(override.code, 2);
  EXPECT_THAT(override.err, HasSubstr("--set spec.training.steps"));
}

TEST_F(FusionctlTest, TheSameProfilesAndSeedGiveTheSamePlan) {
  const std::string profiles = Calibrated();
  std::string documents[2];
  for (std::string& text : documents) {
    const Outcome outcome = Run("--format json plan job.yaml --topology topology.yaml --seed 5 --explain --profiles " + profiles);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    json document = json::parse(outcome.out);
    EXPECT_GE(document["search_cpu_seconds"].get<double>(), 0);
    document.erase("search_cpu_seconds");
    text = document.dump();
    const auto parsed = wire::ParsePlan(outcome.out);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
  }
  EXPECT_EQ(documents[0], documents[1]);
  const json plan = json::parse(documents[0]);
  for (const char* key :
       {"strategy", "predicted_step_seconds", "lower_bound_seconds", "gap", "micro_batches", "in_flight", "stages", "links", "explain"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_GE(plan["gap"].get<double>(), 0);
}

TEST_F(FusionctlTest, AQuickPlanIsAPlanOfTheSameJobAndNoBetterThanAFullOne) {
  const std::string rest = " --topology topology.yaml --format json --profiles " + Calibrated();
  json plans[2];
  for (const int full : {0, 1}) {
    const Outcome outcome = Run(std::string("plan job.yaml --effort ") + (full ? "full" : "quick") + rest);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    plans[full] = json::parse(outcome.out);
  }
  EXPECT_EQ(plans[0]["graph_hash"], plans[1]["graph_hash"]);
  EXPECT_LE(plans[1]["predicted_step_seconds"].get<double>(), plans[0]["predicted_step_seconds"].get<double>());
  const Outcome unknown = Run("plan job.yaml --effort enormous" + rest);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--effort"));
}

TEST_F(FusionctlTest, StrategyAndOverridesAreHeeded) {
  const std::string rest = " --topology topology.yaml --profiles " + Calibrated();
  const Outcome outcome = Run("plan job.yaml --strategy equal-ops --set spec.training.globalBatchSize=8 --format json" + rest);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan["strategy"], "equal-ops");
  EXPECT_EQ(plan["micro_batches"], 4);
  EXPECT_EQ(plan["stages"].size(), 3);
  const Outcome unknown = Run("plan job.yaml --strategy guess" + rest);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("op-fence"));
}

TEST_F(FusionctlTest, ARefusedPlanIsThree) {
  std::string small = kTopology;
  for (size_t at = small.find("1Gi"); at != std::string::npos; at = small.find("1Gi")) small.replace(at, 3, "8Ki");
  Write("small.yaml", small);
  const Outcome outcome = Run("--format json plan job.yaml --topology small.yaml --profiles " + Calibrated());
  EXPECT_EQ(outcome.code, 3);
  const json document = json::parse(outcome.out);
  EXPECT_FALSE(document["refused"]["reason"].get<std::string>().empty());
  EXPECT_FALSE(document["refused"]["message"].get<std::string>().empty());
  EXPECT_GT(document["refused"]["shortfall"]["needed"].get<double>(), document["refused"]["shortfall"]["available"].get<double>());
}

TEST_F(FusionctlTest, GraphIsDrawnAndItsTextFormIsAJobAgain) {
  EXPECT_EQ(Run("graph job.yaml -o g.svg").code, 0);
  EXPECT_THAT(base::ReadWholeFile(Path("g.svg")), HasSubstr("<svg"));
  EXPECT_EQ(Run("graph job.yaml --plan --topology topology.yaml -o g.dot --profiles " + Calibrated()).code, 0);
  EXPECT_THAT(base::ReadWholeFile(Path("g.dot")), HasSubstr("digraph"));
  ASSERT_EQ(Run("graph job.yaml -o g.dag").code, 0);
  EXPECT_EQ(Run("graph job.yaml").out, base::ReadWholeFile(Path("g.dag"))) << "without -o the text form is printed";
  EXPECT_THAT(Run("graph job.yaml --plan").err, HasSubstr("--output")) << "a plan colours drawings alone";
  std::string own = kJob;
  const size_t begin = own.find("model:"), end = own.find('\n', begin);
  own.replace(begin, end - begin, "model: {graph: {file: g.dag}}");
  Write("own.yaml", own);
  const Outcome again = Run("graph own.yaml -o again.dag");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(base::ReadWholeFile(Path("again.dag")), base::ReadWholeFile(Path("g.dag")));
  EXPECT_EQ(Run("graph job.yaml -o g.png").code, 2);
}

TEST_F(FusionctlTest, CheckpointCommandsSayWhatIsMissing) {
  EXPECT_EQ(Run("--format json checkpoint ls .").out, "[]\n");
  const Outcome missing = Run("checkpoint ls nowhere");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("nowhere does not exist"));
  EXPECT_THAT(Run("checkpoint ls job.yaml").err, HasSubstr("job.yaml is not a folder"));
  EXPECT_EQ(Run("checkpoint inspect nowhere").code, 2);
  EXPECT_EQ(Run("checkpoint verify nowhere").code, 2);
  EXPECT_EQ(Run("eval nowhere --data text.txt").code, 2);
}

// One bit in a checkpoint: its reader says so.
TEST_F(FusionctlTest, ADamagedCheckpointIsNeitherTrainedFromNorEvaluatedNorExported) {
  Write("text.txt", std::string(400, 'x'));
  const std::string save = " --set spec.training.steps=2 --set 'spec.checkpoint={path: kept, everySteps: 1, keep: 2}'";
  ASSERT_EQ(Run("run job.yaml --output out" + save).code, 0);
  fs::create_directories(Path("kept_by"));
  fs::create_directory_symlink("../out/kept", Path("kept_by/checkpoints"));
  EXPECT_THAT(Run("checkpoint ls kept_by").out, HasSubstr("kept_by/checkpoints/step-000002"));
  EXPECT_THAT(Run("checkpoint verify out/kept").out, AllOf(HasSubstr("step-000001 is whole"), HasSubstr("step-000002 is whole")));
  EXPECT_EQ(Run("checkpoint export out/kept good.safetensors").code, 0);

  const std::string file = Path("out/kept/step-000002/model.safetensors");
  std::string bytes = base::ReadWholeFile(file);
  bytes[bytes.size() - 3] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  for (const char* reads :
       {"eval out/kept/latest --data text.txt", "run job.yaml --output new --set spec.model.init.from=out/kept/latest"}) {
    const Outcome outcome = Run(reads);
    EXPECT_EQ(outcome.code, 2) << reads;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("step-000002/model.safetensors"), HasSubstr("checksum"))) << reads;
  }
  const Outcome exported = Run("checkpoint export out/kept/latest bad.safetensors");
  EXPECT_EQ(exported.code, 2);
  EXPECT_THAT(exported.err, HasSubstr("checksum"));
  EXPECT_FALSE(fs::exists(Path("bad.safetensors")));
  const Outcome verified = Run("--format json checkpoint verify out/kept");
  EXPECT_EQ(verified.code, 1);
  EXPECT_FALSE(json::parse(verified.out)["whole"].get<bool>());
  EXPECT_EQ(json::parse(verified.out)["checkpoints"].size(), 2);
  EXPECT_EQ(Run("checkpoint verify out/kept/latest").code, 1);

  EXPECT_EQ(Run("checkpoint export good.safetensors /dev/null").code, 2) << "not replaced";
  EXPECT_EQ(Run("checkpoint export good.safetensors out/kept/latest/model.safetensors").code, 2);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FusionctlTest, AFreshRunLeavesWhatWasThereAndAResumedOneTellsWhatChanged) {
  Write("text.txt", std::string(400, 'x'));
  const std::string keep =
      "run job.yaml --format json --output out --set 'spec.checkpoint={path: kept/, everySteps: 1, keep: 1}' "
      "--set spec.training.schedule.name=constant";
  ASSERT_EQ(Run(keep + " --set spec.training.steps=5").code, 0);
  ASSERT_EQ(Run(keep + " --set spec.training.steps=3 --fresh").code, 0);
  EXPECT_TRUE(fs::exists(Path("out/kept/step-000005"))) << "keep: 1 counts only the checkpoints of the fresh run";
  EXPECT_TRUE(fs::exists(Path("out/kept/step-000003")));
  EXPECT_FALSE(fs::exists(Path("out/kept/step-000002")));

  const Outcome resumed = Run(keep + " --set spec.training.steps=4 --set spec.training.seed=77");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, AllOf(HasSubstr("\"JobChanged\""), HasSubstr("this job: spec.training.seed 1337 -> 77\""),
                                 HasSubstr("out/kept/step-000004"), Not(HasSubstr("kept//"))));
  EXPECT_TRUE(fs::exists(Path("out/kept/step-000005")));
  EXPECT_TRUE(fs::exists(Path("out/kept/step-000004"))) << "it went on from step 3, the newest";
  EXPECT_THAT(Run(keep + " --set spec.training.steps=6 --set spec.training.seed=77").out, Not(HasSubstr("JobChanged")));
}

TEST_F(FusionctlTest, WhatCannotBeWrittenIsSaid) {
  Write("text.txt", std::string(400, 'x'));
  for (const char* arguments : {"--format json checkpoint ls . >/dev/full", "run job.yaml --format json --output out >/dev/full"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to stdout: No space left")) << arguments;
    EXPECT_EQ(outcome.err.find("cannot write to stdout"), outcome.err.rfind("cannot write to stdout")) << outcome.err;
  }
  for (const char* arguments : {"--format json checkpoint ls . >&-", "run job.yaml --format json --output closed <&- >&-"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to stdout: Bad file descriptor")) << arguments;
  }
}

TEST_F(FusionctlTest, AnOutputThatCannotBeWrittenStaysAsItWas) {
  for (const std::string arguments : {"graph job.yaml -o out.svg", "bench job.yaml --calibrate -o out.svg"}) {
    Write("out.svg", "of before");
    const Outcome outcome = Run("--version >/dev/null && trap '' XFSZ && ulimit -f 1 && exec $FUSIONLLM_BIN_DIR/fusionctl " + arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write out.svg: File too large")) << arguments;
    EXPECT_EQ(base::ReadWholeFile(Path("out.svg")), "of before") << arguments;
  }
}

TEST_F(FusionctlTest, AnEmptyValueIsNoValue) {
  for (const char* arguments : {"run job.yaml --topology ''", "run job.yaml --output ''", "plan job.yaml --profiles \"\"", "run ''"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("must not be empty")) << arguments;
  }
}

TEST_F(FusionctlTest, ARunTellsWhatIsOddAboutItsJob) {
  Write("text.txt", std::string(400, 'x'));
  const Outcome outcome = Run("run job.yaml --output out --no-checkpoint --set spec.training.steps=0");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: --set spec.training.steps: 0"));
}

TEST_F(FusionctlTest, ARunThatCannotBeginStartsNothing) {
  Write("text.txt", std::string(400, 'x'));
  Write("short.txt", "short");
  for (const auto& [set, word] : std::vector<std::pair<std::string, std::string>>{
           {"spec.training.precision=fp8", "spec.training.precision: must be"},
           {"spec.data.path=[nowhere.txt]", "fusionctl: --set spec.data.path: "},
           {"spec.data.path=[nowhere.txt]", "nowhere.txt does not exist"},
           {"spec.data.validation.path=[nowhere.txt]", "fusionctl: --set spec.data.validation.path: "},
           {"spec.training.sequenceLength=32 --set spec.data.path=[short.txt]", "5 tokens"},
           {"spec.model='{graph: {inline: \"graph g\"}}'", "spec.model.graph.inline:1:7"}}) {
    const Outcome outcome = Run("run job.yaml --output out --set " + set);
    EXPECT_EQ(outcome.code, 2) << set;
    EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_FALSE(fs::exists(Path("out"))) << set;
  }
  EXPECT_EQ(Run("plan job.yaml --profiles .").code, 2) << "a folder";
}

TEST_F(FusionctlTest, ARunEvaluatesAtItsInterval) {
  Write("text.txt", std::string(400, 'x'));
  const Outcome outcome =
      Run("--format json run job.yaml --output out --set spec.training.steps=5 --set spec.data.validation='{fraction: 0.3}' "
          "--set spec.training.evaluation='{everySteps: 2, batches: 1}'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<int> evaluated;
  double before = std::log(256.0) + 0.5;
  std::istringstream lines(outcome.out);
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text);
    if (line["type"] != "eval") continue;
    evaluated.push_back(line["step"]);
    EXPECT_LT(line["loss"].get<double>(), before) << "one letter is soon learnt";
    before = line["loss"];
  }
  EXPECT_EQ(evaluated, (std::vector<int>{2, 4, 5}));
}

TEST_F(FusionctlTest, AMedianOfNothingIsNotZero) {
  Write("text.txt", std::string(400, 'x'));
  const Outcome outcome = Run("--format json run job.yaml --output out --set spec.training.steps=2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  json last;
  for (std::string text; std::getline(lines, text);) last = json::parse(text);
  ASSERT_EQ(last["type"], "summary");
  EXPECT_TRUE(last["median_step_seconds"].is_null()) << "the median is over steps from the third on, and there are two";
  EXPECT_GT(last["predicted_step_seconds"].get<double>(), 0);
}

TEST_F(FusionctlTest, DoctorAndCompletionWork) {
  const Outcome doctor = Run("--format json doctor");
  const json report = json::parse(doctor.out);
  EXPECT_EQ(doctor.code, report["healthy"].get<bool>() ? 0 : 1);
  EXPECT_GE(report["checks"].size(), 9);
  std::string device, load;
  for (const json& check : report["checks"]) {
    if (check["name"] == "device") device = check["finding"];
    if (check["name"] == "load") load = check["finding"];
  }
  EXPECT_THAT(load,
              AnyOf(StartsWith("other programs use "), StartsWith("this machine is busy: other programs use "), StartsWith("not known")));
  EXPECT_THAT(device, AnyOf(StartsWith("the CPU: "), HasSubstr("compute capability")));
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = Run("completion " + shell);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("topology")) << shell;
  }
}

TEST_F(FusionctlTest, CompletionKnowsCommandsOptionsAndTheirValues) {
  Write("completion.bash", Run("completion bash").out);
  const auto complete = [this](const std::string& words) {  // the last one is completed
    Write("complete.sh", "source completion.bash\nCOMP_WORDS=(fusionctl " + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_fusionctl\necho \"${COMPREPLY[*]}\"\n");
    FILE* shell = popen(("cd '" + Path("") + "' && bash complete.sh").c_str(), "r");
    std::string line(4096, '\0');
    if (fgets(line.data(), static_cast<int>(line.size()), shell) == nullptr) line.clear();
    EXPECT_EQ(pclose(shell), 0) << words;
    line.resize(line.find_first_of(std::string("\n\0", 2)));
    return line;
  };
  EXPECT_EQ(complete("checkpoint ins"), "inspect");
  EXPECT_EQ(complete("completion ''"), "bash zsh fish --help --version --format --log-level");
  EXPECT_EQ(complete("run --log-l"), "--log-level") << "an option of all commands";
  EXPECT_EQ(complete("--format ''"), "text json");
  EXPECT_EQ(complete("plan job.yaml --format j"), "json");
  EXPECT_EQ(complete("plan job.yaml --format = j"), "json") << "as bash splits --format=j";
  EXPECT_EQ(complete("plan job.yaml --format ="), "text json");
  EXPECT_EQ(complete("--log-level debug plan --effort ''"), "quick full");
  EXPECT_EQ(complete("plan --strategy op"), "op-fence");
  EXPECT_EQ(complete("simulate --schedule 1f1b"), "1f1b 1f1b-split");
  EXPECT_EQ(complete("plan --objective d"), "dt-fm");
  EXPECT_EQ(complete("run --topology ''"), "") << "names of files, which bash completes by itself";
  EXPECT_THAT(Run("completion fish").out,
              AllOf(HasSubstr("complete -c fusionctl -l format -x -a 'text json'\n"),
                    HasSubstr("from simulate' -l effort -x -a 'quick full'\n"), HasSubstr("from plan' -l topology -r\n")));
}

}  // namespace
}  // namespace fusionllm::cli
