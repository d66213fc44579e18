#include "lib/opdag/op_hints.h"

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"

namespace fusionllm::opdag {
namespace {

struct Word {
  const char* folded;  // base::NormalizeName of what others write
  const char* op;      // empty: no single op
  const char* recipe;  // instead of "did you mean 'OP'?"
};

constexpr char kSilu[] = "it is x times its sigmoid: write gate = sigmoid(x), then y = mul(x, gate)";
constexpr char kSwiglu[] =
    "it is silu of one linear times another: write gate = sigmoid(g), silu = mul(g, gate), then y = mul(silu, u), where g and u are "
    "linears";
constexpr char kRmsNorm[] =
    "it is made of square, reduce, scale, sqrt, div and mul: docs/tasks/own-graph.md has the lines ('A Llama from these operators')";
constexpr char kRope[] =
    "it is made of split, neg, concat, mul and add, over tables of cos and sin: docs/tasks/own-graph.md has the lines ('A Llama from these "
    "operators')";
constexpr char kManyHeads[] =
    "attention takes q, k and v side by side: write qkv = concat(q, k, v) {axis=2}, then y = attention(qkv) {heads=N}; "
    "docs/tasks/own-graph.md has "
    "what fewer heads for keys and values take";
constexpr char kParameter[] =
    "parameters belong to ops, as the weight of a linear: docs/tasks/own-graph.md shows one that stands alone ('A Llama from these "
    "operators')";
constexpr char kMean[] = "write y = reduce(x) {axes=[1], kind=\"mean\"}, with the axes that are to go";
constexpr char kSum[] = "write y = reduce(x) {axes=[1], kind=\"sum\"}, with the axes that are to go";
constexpr char kInput[] =
    "write x = placeholder() {dtype=\"f32\", role=\"images\", shape=[b, 784]}, with the role and the shape of the data";
constexpr char kPower[] = "write y = square(x), or products of mul";
constexpr char kRsqrt[] = "write root = sqrt(x), then y = div(a, root)";

constexpr Word kWords[] = {
    {"silu", "", kSilu},
    {"swish", "", kSilu},
    {"swiglu", "", kSwiglu},
    {"rmsnorm", "", kRmsNorm},
    {"rms", "", kRmsNorm},
    {"rope", "", kRope},
    {"rotary", "", kRope},
    {"rotaryembedding", "", kRope},
    {"applyrotaryposemb", "", kRope},
    {"multiheadattention", "", kManyHeads},
    {"mha", "", kManyHeads},
    {"gqa", "", kManyHeads},
    {"groupedqueryattention", "", kManyHeads},
    {"scaleddotproductattention", "", kManyHeads},
    {"sdpa", "", kManyHeads},
    {"flashattention", "", kManyHeads},
    {"selfattention", "", kManyHeads},
    {"parameter", "", kParameter},
    {"param", "", kParameter},
    {"input", "", kInput},
    {"mean", "", kMean},
    {"sum", "", kSum},
    {"pow", "", kPower},
    {"power", "", kPower},
    {"rsqrt", "", kRsqrt},
    {"dense", "linear", ""},
    {"fullyconnected", "linear", ""},
    {"fc", "linear", ""},
    {"gemm", "linear", ""},
    {"conv", "conv2d", ""},
    {"convolution", "conv2d", ""},
    {"layernormalization", "layer_norm", ""},
    {"ln", "layer_norm", ""},
    {"batchnorm2d", "batch_norm", ""},
    {"batchnormalization", "batch_norm", ""},
    {"bmm", "matmul", ""},
    {"einsum", "matmul", ""},
    {"maxpool", "max_pool2d", ""},
    {"avgpool", "avg_pool2d", ""},
    {"averagepool", "avg_pool2d", ""},
    {"adaptiveavgpool2d", "global_avg_pool", ""},
    {"globalaveragepool", "global_avg_pool", ""},
    {"crossentropyloss", "cross_entropy", ""},
    {"softmaxcrossentropy", "cross_entropy", ""},
    {"mseloss", "mse", ""},
    {"cat", "concat", ""},
    {"concatenate", "concat", ""},
    {"chunk", "split", ""},
    {"permute", "transpose", ""},
    {"view", "reshape", ""},
    {"expand", "broadcast_to", ""},
    {"multiply", "mul", ""},
    {"divide", "div", ""},
    {"subtract", "sub", ""},
};

}  // namespace

std::string HintForOp(absl::string_view type) {
  const std::string folded = base::NormalizeName(type);
  for (const Word& word : kWords) {
    if (folded != word.folded) continue;
    return *word.op != '\0' ? absl::StrCat("did you mean '", word.op, "'?") : word.recipe;
  }
  return "";
}

}  // namespace fusionllm::opdag
