#include "lib/job/field_hints.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "lib/base/nearest_name.h"
#include "lib/job/reference.h"
#include "lib/models/families.h"

namespace fusionllm::job {
namespace {

constexpr size_t kMaxLocations = 2;   // a name with more homes than that ("name", "path") says little about which was meant
constexpr size_t kShortestGuess = 5;  // characters of a name that is looked for by spelling in the whole document

struct Word {
  const char* folded;  // base::NormalizeName of what others write
  const char* path;    // empty: no single field
  const char* note;    // instead of "did you mean PATH?"
};

constexpr char kStepsOnly[] =
    "training is counted in steps alone: an epoch is (samples / spec.training.globalBatchSize) steps, of text (tokens / "
    "(globalBatchSize x sequenceLength)); set spec.training.steps";
constexpr char kAccumulation[] =
    "a step adds up globalBatchSize / microBatchSize passes: set spec.training.globalBatchSize to the samples of one step and "
    "spec.training.microBatchSize to those of one pass";
constexpr char kWarmupRatio[] =
    "the warm-up is counted in steps: set spec.training.schedule.warmupSteps to the ratio times spec.training.steps";
constexpr char kDevice[] =
    "what computes is said to the program: `fusionctl run --device cuda:0` (cpu, auto; several by commas), or by the devices of a "
    "topology; "
    "in a cluster spec.placement.device and spec.executors.template say it";
constexpr char kLogEvery[] =
    "lines of progress are an option of the program: `fusionctl run --log-every N`; events.jsonl in the run's folder has every step";
constexpr char kTokenizer[] =
    "there is no tokenizer yet: make token ids with yours (docs/tasks/prepare-data.md has four lines of Python), name the file by "
    "spec.data.kind: tokens "
    "and spec.data.path, and give spec.model.config.vocabSize";
constexpr char kCompile[] = "ops run as kernels that are built in, so there is nothing to compile: leave it out";
constexpr char kBetas[] =
    "they are two fields: spec.training.optimizer.beta1 and spec.training.optimizer.beta2, as in beta1: 0.9, beta2: 0.95";
constexpr char kModelName[] =
    "did you mean spec.model.family ($0), with spec.model.preset for its size? A checkpoint to start from is spec.model.init.from";
constexpr char kHubDataset[] =
    "did you mean spec.data.path? It names files or folders: nothing is fetched from the Hugging Face hub, and docs/tasks/prepare-data.md "
    "shows how to "
    "make a file of tokens";
constexpr char kTracking[] =
    "there is no tracking by TensorBoard or Weights & Biases yet; events.jsonl in the run's folder has every step "
    "(docs/reference/events.md passes "
    "it on in six lines of Python)";
constexpr char kSeeds[] = "did you mean spec.training.seed (data order, dropout) or spec.model.init.seed (first parameters)?";
constexpr char kEarlyStopping[] =
    "there is no early stopping: set spec.training.steps; spec.checkpoint.keep says how many checkpoints stay, and events.jsonl in "
    "the run's folder has every validation loss";
constexpr char kDropout[] =
    "families have no dropout: leave it out, or write the model as a graph of ops (spec.model.graph, docs/tasks/own-graph.md), where "
    "dropout is one";

// Of PyTorch, the Trainer of transformers, nanoGPT, torchtitan, DeepSpeed and Megatron-LM.
constexpr Word kWords[] = {
    {"lr", "spec.training.optimizer.learningRate", ""},
    {"learningrate", "spec.training.optimizer.learningRate", ""},
    {"maxlr", "spec.training.optimizer.learningRate", ""},
    {"minlr", "spec.training.schedule.minLearningRate", ""},
    {"optim", "spec.training.optimizer", ""},
    {"wd", "spec.training.optimizer.weightDecay", ""},
    {"l2", "spec.training.optimizer.weightDecay", ""},
    {"adambeta1", "spec.training.optimizer.beta1", ""},
    {"adambeta2", "spec.training.optimizer.beta2", ""},
    {"eps", "spec.training.optimizer.epsilon", ""},
    {"adamepsilon", "spec.training.optimizer.epsilon", ""},
    {"scheduler", "spec.training.schedule", ""},
    {"lrscheduler", "spec.training.schedule.name", ""},
    {"lrschedulertype", "spec.training.schedule.name", ""},
    {"lrschedule", "spec.training.schedule.name", ""},
    {"warmup", "spec.training.schedule.warmupSteps", ""},
    {"warmupiters", "spec.training.schedule.warmupSteps", ""},
    {"numwarmupsteps", "spec.training.schedule.warmupSteps", ""},
    {"warmupratio", "", kWarmupRatio},
    {"epochs", "", kStepsOnly},
    {"epoch", "", kStepsOnly},
    {"maxepochs", "", kStepsOnly},
    {"numepochs", "", kStepsOnly},
    {"numtrainepochs", "", kStepsOnly},
    {"maxsteps", "spec.training.steps", ""},
    {"maxiters", "spec.training.steps", ""},
    {"trainiters", "spec.training.steps", ""},
    {"numsteps", "spec.training.steps", ""},
    {"totalsteps", "spec.training.steps", ""},
    {"iterations", "spec.training.steps", ""},
    {"batchsize", "spec.training.globalBatchSize", ""},
    {"trainbatchsize", "spec.training.globalBatchSize", ""},
    {"microbatch", "spec.training.microBatchSize", ""},
    {"perdevicetrainbatchsize", "", kAccumulation},
    {"perdeviceevalbatchsize", "spec.training.evaluation.batches", ""},
    {"trainmicrobatchsizepergpu", "spec.training.microBatchSize", ""},
    {"gradientaccumulationsteps", "", kAccumulation},
    {"gradaccumsteps", "", kAccumulation},
    {"accumulategradbatches", "", kAccumulation},
    {"maxgradnorm", "spec.training.gradientClipNorm", ""},
    {"gradclip", "spec.training.gradientClipNorm", ""},
    {"clipgrad", "spec.training.gradientClipNorm", ""},
    {"gradientclipping", "spec.training.gradientClipNorm", ""},
    {"clipgradnorm", "spec.training.gradientClipNorm", ""},
    {"bf16", "spec.training.precision", "did you mean spec.training.precision: bf16?"},
    {"fp16", "spec.training.precision",
     "activations are fp32 or bf16: spec.training.precision; fp16 is a codec of links (spec.compression.codec)"},
    {"dtype", "spec.training.precision", ""},
    {"mixedprecision", "spec.training.precision", ""},
    {"gradientcheckpointing", "spec.training.recompute", ""},
    {"activationcheckpointing", "spec.training.recompute", ""},
    {"seqlen", "spec.training.sequenceLength", ""},
    {"seqlength", "spec.training.sequenceLength", ""},
    {"maxseqlen", "spec.training.sequenceLength", ""},
    {"maxseqlength", "spec.training.sequenceLength", ""},
    {"maxlength", "spec.training.sequenceLength", ""},
    {"contextlength", "spec.training.sequenceLength", ""},
    {"seed", "", kSeeds},
    {"randomseed", "", kSeeds},
    {"manualseed", "", kSeeds},
    {"dataseed", "spec.training.seed", ""},
    {"earlystopping", "", kEarlyStopping},
    {"earlystoppingpatience", "", kEarlyStopping},
    {"patience", "", kEarlyStopping},
    {"savebest", "", kEarlyStopping},
    {"loadbestmodelatend", "", kEarlyStopping},
    {"metricforbestmodel", "", kEarlyStopping},
    {"evalsteps", "spec.training.evaluation.everySteps", ""},
    {"evalinterval", "spec.training.evaluation.everySteps", ""},
    {"evaliters", "spec.training.evaluation.batches", ""},
    {"evalevery", "spec.training.evaluation.everySteps", ""},
    {"eval", "spec.training.evaluation", ""},
    {"savesteps", "spec.checkpoint.everySteps", ""},
    {"saveinterval", "spec.checkpoint.everySteps", ""},
    {"saveevery", "spec.checkpoint.everySteps", ""},
    {"checkpointinterval", "spec.checkpoint.everySteps", ""},
    {"savetotallimit", "spec.checkpoint.keep", ""},
    {"outputdir", "spec.checkpoint.path", "the folder of a run is the option --output; checkpoints go to spec.checkpoint.path below it"},
    {"outdir", "spec.checkpoint.path", "the folder of a run is the option --output; checkpoints go to spec.checkpoint.path below it"},
    {"resumefromcheckpoint", "spec.checkpoint.resume", ""},
    {"initfrom", "spec.model.init.from", ""},
    {"pretrained", "spec.model.init.from", ""},
    {"modelnameorpath", "spec.model.init.from", ""},
    {"valsplit", "spec.data.validation.fraction", ""},
    {"dataset", "spec.data", ""},
    {"trainfile", "spec.data.path", ""},
    {"validationfile", "spec.data.validation.path", ""},
    {"worldsize", "spec.executors.replicas", ""},
    {"nprocpernode", "spec.executors.replicas", ""},
    {"pipelineparallelsize", "spec.strategy.stages", ""},
    {"pipelineparalleldegree", "spec.strategy.stages", ""},
    {"dataparallelsize", "spec.strategy.replicas", ""},
    {"device", "", kDevice},
    {"devices", "", kDevice},
    {"devicemap", "", kDevice},
    {"accelerator", "", kDevice},
    {"gpu", "", kDevice},
    {"gpus", "", kDevice},
    {"gpuids", "", kDevice},
    {"ngpu", "", kDevice},
    {"ngpus", "", kDevice},
    {"numgpus", "", kDevice},
    {"cuda", "", kDevice},
    {"usecuda", "", kDevice},
    {"nocuda", "", kDevice},
    {"usecpu", "", kDevice},
    {"localrank", "", kDevice},
    {"logevery", "", kLogEvery},
    {"logeverynsteps", "", kLogEvery},
    {"loginterval", "", kLogEvery},
    {"logfreq", "", kLogEvery},
    {"loggingsteps", "", kLogEvery},
    {"logsteps", "", kLogEvery},
    {"dropout", "", kDropout},
    {"attnpdrop", "", kDropout},
    {"embdpdrop", "", kDropout},
    {"residpdrop", "", kDropout},
    {"attentiondropout", "", kDropout},
    {"hiddendropout", "", kDropout},
    {"tokenizer", "", kTokenizer},
    {"tokenizername", "", kTokenizer},
    {"tokenizerpath", "", kTokenizer},
    {"compile", "", kCompile},
    {"torchcompile", "", kCompile},
    {"torchdynamo", "", kCompile},
    {"betas", "", kBetas},
    {"adambetas", "", kBetas},
    {"datasetname", "", kHubDataset},
    {"reportto", "", kTracking},
    {"tensorboard", "", kTracking},
    {"wandb", "", kTracking},
    {"log", "", kLogEvery},
    {"amp", "spec.training.precision", ""},
    {"clip", "spec.training.gradientClipNorm", ""},
    {"clipnorm", "spec.training.gradientClipNorm", ""},
    {"shuffle", "", "samples come in an order drawn from spec.training.seed, each once before any comes again: leave it out"},
    {"numworkers", "", "data are read by the executor that needs them, ahead of time: leave it out"},
    {"dataloadernumworkers", "", "data are read by the executor that needs them, ahead of time: leave it out"},
    {"llama", "",
     "there is no family for it yet: spec.model.graph takes any graph of ops, and docs/tasks/own-graph.md has the parts of a Llama"},
};

constexpr char kGpuProfile[] =
    "a GPU whose published figures are to be used is named by `profile` of its device, as in profile: nvidia-a100-80gb-sxm";
constexpr char kLinkSpeed[] = "the speed of a link is its `bandwidth`, as in bandwidth: 100Mbit";

constexpr Word kTopologyWords[] = {
    {"gpu", "", kGpuProfile},
    {"gpus", "", kGpuProfile},
    {"gputype", "", kGpuProfile},
    {"accelerator", "", kGpuProfile},
    {"speed", "", kLinkSpeed},
    {"throughput", "", kLinkSpeed},
    {"mbps", "", kLinkSpeed},
    {"delay", "", "did you mean latency?"},
    {"rtt", "", "a link has its one-way delay, half the round trip: `latency`, as in latency: 30ms"},
};

// Words that mean something else in one mapping than elsewhere.
struct PlacedWord {
  const char* parent;  // path of the mapping
  const char* folded;
  const char* note;  // $0: the families
};

constexpr PlacedWord kPlacedWords[] = {
    {"spec.model", "name", kModelName},         {"spec.model", "type", kModelName},
    {"spec.model", "architecture", kModelName}, {"spec.model", "modeltype", kModelName},
    {"spec.data", "dataset", kHubDataset},      {"spec.data", "name", kHubDataset},
    {"spec.data", "repo", kHubDataset},         {"spec.data", "dtype", "did you mean spec.data.tokenDtype?"},
};

std::string DidYouMean(absl::string_view what) { return absl::StrCat("did you mean ", what, "?"); }

void Collect(const FieldSchema& object, const std::string& path, std::map<std::string, std::vector<std::string>>& paths,
             std::vector<std::string>& names) {
  for (const FieldSchema& field : object.children) {
    const std::string inner = absl::StrCat(path, path.empty() ? "" : ".", field.name);
    std::vector<std::string>& homes = paths[base::NormalizeName(field.name)];
    if (homes.empty()) names.push_back(field.name);
    homes.push_back(inner);
    if (field.type == FieldType::kObject) Collect(field, inner, paths, names);
  }
}

}  // namespace

FieldHints::FieldHints(const FieldSchema& root, Document document) : document_(document) { Collect(root, "", paths_, names_); }

std::string FieldHints::For(absl::string_view path, absl::string_view key, std::span<const std::string> known) const {
  const std::string folded = base::NormalizeName(key);
  // YAML takes `steps:5` for one word.
  const size_t colon = key.find(':');
  for (const std::string& name : known) {
    if (colon != absl::string_view::npos && key.substr(0, colon) == name) {
      return absl::StrCat("a blank is missing behind ':', as in ", name, ": ", key.substr(colon + 1));
    }
    if (base::NormalizeName(name) == folded) return DidYouMean(name);
  }
  const bool job = document_ == Document::kFusionJob;
  for (const PlacedWord& word : kPlacedWords) {
    if (job && path == word.parent && folded == word.folded) return absl::Substitute(word.note, models::FamilyList(models::AllFamilies()));
  }
  for (const Word& word : job ? std::span<const Word>(kWords) : kTopologyWords) {
    if (folded != word.folded) continue;
    return *word.note != '\0' ? word.note : DidYouMean(word.path);
  }
  for (const models::Family* family : job ? models::AllFamilies() : std::vector<const models::Family*>()) {
    for (const models::FieldSynonym& word : family->facts().synonyms) {
      if (folded == word.folded) return DidYouMean(word.path);
    }
  }
  const auto elsewhere = [&](const std::string& name) -> std::string {
    const auto homes = paths_.find(name);
    if (homes == paths_.end() || homes->second.size() > kMaxLocations) return "";
    return DidYouMean(absl::StrJoin(homes->second, " or "));
  };
  if (std::string found = elsewhere(folded); !found.empty()) return found;
  if (const std::string near = base::NearestName(key, known); !near.empty()) return DidYouMean(near);
  if (folded.size() < kShortestGuess) return "";
  return elsewhere(base::NormalizeName(base::NearestName(key, names_)));
}

std::string FieldHints::ForValue(absl::string_view path, absl::string_view wrong) const {
  if (document_ != Document::kFusionJob || absl::StrContains(wrong, "did you mean")) return "";
  if (path == "spec.data.validation.fraction" && absl::StrContains(wrong, "must be above 0"))
    return "; to hold nothing out write spec.data.validation: null";
  if (path == "spec.strategy.backend") return absl::StrCat("; ", kDevice);
  if (path == "spec.data.kind") return "; text that a tokenizer is to read becomes a file of token ids first (docs/tasks/prepare-data.md)";
  if (path == "spec.training.precision" && absl::StrContains(wrong, "\"fp16\""))
    return "; fp16 is a codec of links: spec.compression.codec";
  if (path != "spec.model.family") return "";
  return "; another model, a Llama too until it is a family, is written as a graph of ops: spec.model.graph (docs/tasks/own-graph.md has "
         "the parts "
         "of a Llama)";
}

const FieldHints& FusionJobHints() {
  static const FieldHints hints(FusionJobSchema(), FieldHints::Document::kFusionJob);
  return hints;
}

const FieldHints& TopologyHints() {
  static const FieldHints hints(TopologySchema(), FieldHints::Document::kTopology);
  return hints;
}

}  // namespace fusionllm::job
