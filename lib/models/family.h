// A family: a kind of model that is built in, as an object. All that others need to know of GPT-2 or ResNet they ask here; which families
// there are stands in families.h alone. docs/design/extending-jobs.md has the recipe for another one.
//
// Families are immutable, live as long as the process, and may be used on several threads at once. Nothing here blocks. They stand below
// jobs (lib/job), so they see of a job what ModelRequest has; the fields that they report are named as jobs name them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/data/config.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/shape.h"

namespace fusionllm::models {

enum class FamilyName;  // families.h
struct ModelSettings;   // families.h
struct ModelSizes;      // families.h
struct ConfigJson;      // config_json.h
struct TrainingRecipe;  // training_recipe.h

// Takes the fields that a finding is about, the one to blame first ("spec.model.config.nHead"), and what is wrong with it.
using Report = std::function<void(std::initializer_list<absl::string_view> paths, absl::string_view message)>;

// What a job says that the sizes of its model follow from.
struct ModelRequest {
  const std::optional<std::string>& preset;
  const ModelSettings& settings;
  int64_t sequence_length = 0;  // tokens of a sample
  data::DatasetKind data_kind = data::DatasetKind::kText;
  const data::ShapesConfig& shapes;  // of data of kind shapes
};

// What a sample is: a sequence of tokens with the ones that follow, or an image with its class.
enum class Samples { kTokens, kImages };

// What other programs call a field of spec.model.config, where a job has it by mistake.
struct FieldSynonym {
  const char* folded;  // base::NormalizeName of it
  const char* path;    // of the field that is meant
};

// What an API server asks of a job of the family, besides types and ranges.
struct ServerRule {
  std::string condition;  // in the Common Expression Language; self is spec.model
  std::string message;
  std::string field;  // below spec.model, what is missing
};

struct FamilyFacts {
  FamilyName id;
  const char* title;                          // in sentences: "GPT-2"
  Samples samples = Samples::kTokens;         // that it trains on
  std::vector<std::string> settings;          // its fields of spec.model.config, in the order of the reference
  std::vector<std::string> presets = {};      // values of spec.model.preset, smallest first
  std::string default_preset = "";            // of jobs that name none
  std::string size_field = "";                // of a family without presets, what says its sizes
  std::vector<ServerRule> server_rules = {};  // by which an API server refuses what Resolve would
  std::vector<FieldSynonym> synonyms = {};    // of PyTorch, transformers, Megatron-LM and others
};

// A size of a model that its description in a file has, too.
struct StoredSize {
  const char* field;                             // of spec.model.config: "nLayer"
  const char* key;                               // of config.json: "n_layer"
  std::optional<int64_t> ModelSettings::*value;  // never null
  int64_t max = 0;                               // of the job's field
  bool of_preset = true;                         // false: the job's data or training says it where the job leaves it out
  std::vector<const char*> modules = {};         // that begin fresh where it differs: "transformer.wpe"
  bool shapes_head = false;                      // likewise an output projection that is not tied
  const char* layers = nullptr;                  // prefix of the modules that there are so many of: "transformer.h."
  const char* absent_in_shapes = nullptr;        // what it counts, where neither names nor shapes of tensors tell: "heads"
};

// An output projection that may be the token embedding.
struct TiedHead {
  const char *head, *embedding;  // names of parameters; an untied model has both
  const char* field;             // of spec.model.config: "tieWeights"
  const char* key;               // of config.json
  std::optional<bool> ModelSettings::*value;
};

// How the ecosystem stores models of the family, for families that are read by what their files say of themselves.
struct HuggingFaceFormat {
  std::vector<const char*> model_types;            // of config.json
  std::vector<const char*> architecture_prefixes;  // likewise, of the names of its classes
  std::vector<StoredSize> sizes;
  TiedHead tied_head;
  const char* layer_tensor;  // behind a prefix of StoredSize::layers and a number: a tensor that each layer has
};

// What lies in a file: shapes by name; null where only the name is known.
using StoredShapes = std::map<std::string, const tensor::Shape*>;

struct SizeDifference {
  std::string field;     // below spec.model: "config.nLayer"
  std::string from, to;  // what the file says, and what the model has
};

// How a head that may be tied was found in a file of parameters.
struct HeadFound {
  bool unread = false;   // stored, and the model ties it to the embedding
  bool missing = false;  // not stored, and the model has one of its own
};

// The parts of a job file that `fusionctl init` writes, as lines of YAML with remarks, indented by four.
struct JobTemplate {
  std::string model, training;
};

// The name that a parameter has for a tensor of a file.
using TensorNameMap = std::function<std::string(absl::string_view tensor)>;

class Family {
 public:
  Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;
  virtual ~Family() = default;

  virtual const FamilyFacts& facts() const = 0;
  std::string name() const;  // as jobs write it: "gpt2"

  // The model that a job means: its preset and overrides made concrete sizes, every field of the family set. Reports what does not fit, and
  // goes on with some value. Limit: 10^12 parameters.
  virtual ModelSizes Resolve(const ModelRequest& request, const Report& report) const = 0;

  // The forward graph; see opdag::Graph. Errors: InvalidArgument for sizes that do not fit each other.
  virtual absl::StatusOr<opdag::Graph> Build(const ModelSizes& sizes, int64_t sequence_length) const = 0;

  // A job of this family that trains on data of this kind, which it can. `preset`: empty for the smallest.
  virtual JobTemplate Template(data::DatasetKind data, const std::string& preset) const = 0;

  // Null: the defaults of the job's table hold for it.
  virtual const TrainingRecipe* recipe() const { return nullptr; }
  // By which the recipe knows it.
  virtual double BlockWeights(const ModelSizes&) const { return 0; }

  // " of 4 layers, width 128", where there are words for it.
  virtual std::string SizeText(const ModelSizes&) const { return ""; }

  // What would make samples of this shape fit, of which the graph wants another: "; give spec.model.config.imageSize: 28". Empty: nothing.
  virtual std::string SampleAdvice(const tensor::Shape&, data::DatasetKind) const { return ""; }

  // Null: what lies in a file does not say what model of the family it is.
  virtual const HuggingFaceFormat* hugging_face_format() const { return nullptr; }
  // Of a family with a HuggingFaceFormat: the sizes that a config.json of its model_type has, what it cannot compute, and what it leaves
  // out. Errors: InvalidArgument for a size that is no number in the range of the job's field.
  virtual absl::Status ReadConfig(const nlohmann::json& document, ConfigJson& config) const;
  // Likewise: a config.json, with which the ecosystem opens parameters of these sizes.
  virtual std::string FormatConfig(const ModelSizes& sizes) const;

  // The names of its parameters in a file that has them under others, by a test for what the file has. Null: the file is none of these.
  virtual TensorNameMap TensorNameMapFor(const std::function<bool(absl::string_view tensor)>& /*has*/) const { return nullptr; }
  // Whether files of others keep such a tensor beside parameters, and it says nothing of the model.
  virtual bool IsBuffer(absl::string_view) const { return false; }
  // The sizes that names and shapes of a file tell, where the model has others.
  virtual std::vector<SizeDifference> DifferencesFrom(const StoredShapes&, const ModelSizes&, const HeadFound&) const { return {}; }

 protected:
  // The index of the preset that is meant; of an unknown one it reports, 0.
  size_t PresetIndex(const ModelRequest& request, const Report& report) const;
};

// Of a count that a floating-point number holds well enough.
void ReportTooManyParameters(double parameters, const Report& report);

}  // namespace fusionllm::models
