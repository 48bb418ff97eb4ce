#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/model.h"
#include "kernels/add/add.h"
#include "kernels/norm/norm.h"
#include "model/attention.h"
#include "model/mlp.h"

namespace dhs {
namespace {

ModelDescription describe(const TargetConfig& config) {
  ModelDescription description;
  description.family = target_family_name(config.family);
  description.vocab_size = config.vocab_size;
  description.max_position = config.max_position;
  description.eos_token_ids = config.eos_token_ids;
  for (const IndexGroup& group : config.index_groups) {
    description.layers_per_group.push_back(group.num_layers);
  }
  description.latent_dim = config.kv_lora_rank;
  description.rope_dim = config.qk_rope_dim;
  description.index_dim = config.index_dim;
  description.top_k = config.index_top_k;
  return description;
}

GemmPrecision choose_precision(MathPrecision wanted, const TargetWeights& weights) {
  if (wanted == MathPrecision::kF32) return GemmPrecision::kF32;
  if (wanted == MathPrecision::kBf16) return GemmPrecision::kBf16;
  const bool is_f32 = weights.layers.front().q_a.dtype == DType::kF32;
  return is_f32 ? GemmPrecision::kF32 : GemmPrecision::kBf16;
}

// The trunk that GLM-5.x and DeepSeek-V3.2 share: pre-norm blocks of latent attention and SwiGLU.
class MlaTarget final : public TargetModel {
 public:
  MlaTarget(Checkpoint checkpoint, TargetConfig config, Stream stream)
      : checkpoint_(std::move(checkpoint)),
        config_(std::move(config)),
        description_(describe(config_)),
        rope_frequencies_(rope_frequencies(config_.qk_rope_dim, config_.rope_theta,
                                           config_.yarn.has_value() ? &*config_.yarn : nullptr)),
        stream_(stream) {}

  absl::Status load(Device& device, const ModelOptions& options) {
    DHS_ASSIGN_OR_RETURN(TargetWeights weights, load_target_weights(checkpoint_, config_));
    Packer packer(choose_precision(options.precision, weights));
    DHS_ASSIGN_OR_RETURN(ws_, reserve_workspace(device, config_, options));
    embedding_ = weights.embedding;
    final_norm_ = weights.final_norm;
    for (const LayerWeights& layer : weights.layers) {
      layers_.push_back(pack_layer(layer, config_, packer));
      DHS_RETURN_IF_ERROR(packer.status());
      if (layers_.size() % 8 == 0 || layers_.size() == weights.layers.size()) {
        log_info("model: packed ", layers_.size(), " of ", weights.layers.size(), " layers");
      }
    }
    lm_head_ = packer.stack({&weights.lm_head});
    return packer.status();
  }

  const ModelDescription& description() const override { return description_; }
  TensorView<const float, 2> logits() const override { return first_rows(ws_.logits, num_logits_); }

  void forward(const TokenBatch& batch, KvStore& kv, TapObserver* taps) override {
    const int64_t n = batch.rows.num_rows();
    embed(batch);
    const AttentionContext attention{config_, rope_frequencies_, ws_, kv, batch.rows, taps,
                                     stream_};
    const MlpContext mlp{config_, ws_, n, taps, stream_};
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const PackedLayer& weights = layers_[layer];
      normalize(weights.input_norm, n);
      run_attention(attention, weights, static_cast<int>(layer));
      add_to_residual(n);
      normalize(weights.post_attention_norm, n);
      run_mlp(mlp, weights, static_cast<int>(layer));
      add_to_residual(n);
      if (taps != nullptr) taps->on_tensor(Tap::kLayerOut, layer, first_rows(ws_.hidden, n));
    }
    project_logits(batch.logit_rows);
  }

 private:
  void embed(const TokenBatch& batch) {
    for (int64_t i = 0; i < batch.rows.num_rows(); ++i) {
      embedding_.rows_to_f32(batch.tokens(i), 1, ws_.hidden.row(i));
      ws_.visible(i) = batch.rows.positions(i) + 1;
    }
  }

  void normalize(const std::vector<float>& weight, int64_t n) {
    launch_rms_norm({first_rows(ws_.hidden, n), weight.data(),
                     static_cast<float>(config_.rms_norm_eps), first_rows(ws_.normed, n)},
                    stream_);
  }

  void add_to_residual(int64_t n) {
    launch_add({first_rows(ws_.sublayer_out, n), first_rows(ws_.hidden, n)}, stream_);
  }

  void project_logits(TensorView<const int32_t, 1> logit_rows) {
    num_logits_ = logit_rows.sizes[0];
    for (int64_t i = 0; i < num_logits_; ++i) {
      std::memcpy(ws_.logit_in.row(i), ws_.hidden.row(logit_rows(i)),
                  static_cast<size_t>(ws_.hidden.sizes[1]) * sizeof(float));
    }
    const auto in = first_rows(ws_.logit_in, num_logits_);
    launch_rms_norm({in, final_norm_.data(), static_cast<float>(config_.rms_norm_eps), in},
                    stream_);
    launch_gemm({lm_head_.get(), in, first_rows(ws_.logits, num_logits_)}, stream_);
  }

  const Checkpoint checkpoint_;  // the embedding stays in its mapping
  const TargetConfig config_;
  const ModelDescription description_;
  const std::vector<double> rope_frequencies_;
  const Stream stream_;
  WeightMatrix embedding_;
  std::vector<PackedLayer> layers_;
  std::vector<float> final_norm_;
  PackedMatrixPtr lm_head_;
  Workspace ws_;
  int64_t num_logits_ = 0;
};

}  // namespace

absl::StatusOr<ModelDescription> describe_model(const std::string& directory) {
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(directory));
  DHS_ASSIGN_OR_RETURN(
      const TargetConfig config,
      parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json()));
  return describe(config);
}

absl::StatusOr<std::unique_ptr<TargetModel>> load_target_model(const std::string& directory,
                                                               Device& device,
                                                               const ModelOptions& options) {
  DHS_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(directory));
  DHS_ASSIGN_OR_RETURN(
      TargetConfig config,
      parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json()));
  auto target =
      std::make_unique<MlaTarget>(std::move(checkpoint), std::move(config), device.stream());
  DHS_RETURN_IF_ERROR(target->load(device, options));
  return target;
}

}  // namespace dhs
