#include "dhisparse/base.h"
#include "dhisparse/model.h"
#include "kernels/add/add.h"
#include "kernels/embedding/embedding.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/take_rows/take_rows.h"
#include "model/attention.h"
#include "model/mlp.h"
#include "model/model_description.h"
#include "model/sharding.h"

namespace dhs {
namespace {

GemmPrecision choose_precision(MathPrecision wanted, const TargetWeights& weights) {
  if (wanted == MathPrecision::kF32) return GemmPrecision::kF32;
  if (wanted == MathPrecision::kBf16) return GemmPrecision::kBf16;
  const bool is_f32 = weights.layers.front().q_a.dtype == DType::kF32;
  return is_f32 ? GemmPrecision::kF32 : GemmPrecision::kBf16;
}

void log_library_use(const ModelOptions& options, BackendKind backend, const LibraryUse& use) {
  if (options.gemm != GemmProvider::kLibrary) return;
  if (backend == BackendKind::kCpu) {
    log_info("model: device.gemm: library changes nothing on the CPU");
    return;
  }
  const bool is_absent = use.num_taken == 0 && use.num_left > 0;
  log_info("model: device.gemm: library: cuBLASLt multiplies ", use.num_taken,
           " matrices of bf16 or fp8, ", use.num_left, " were refused and stay with our kernels",
           is_absent ? "; is libcublasLt.so.13 on the library path?" : "");
}

// The trunk that GLM-5.x and DeepSeek-V3.2 share: pre-norm blocks of latent attention and SwiGLU.
class MlaTarget final : public TargetModel {
 public:
  MlaTarget(Checkpoint checkpoint, TargetConfig config, const Sharding& sharding, Device& device)
      : checkpoint_(std::move(checkpoint)),
        config_(std::move(config)),
        sharding_(sharding),
        own_config_(own_part(config_, sharding)),
        description_(describe(config_)),
        device_(device) {}

  absl::Status load(const ModelOptions& options) {
    tapped_layers_ = options.tapped_layers;
    taps_final_hidden_ = options.taps_final_hidden;
    DHS_ASSIGN_OR_RETURN(TargetWeights weights, load_target_weights(checkpoint_, config_));
    DHS_ASSIGN_OR_RETURN(WeightUploader uploader, WeightUploader::create(device_));
    DHS_ASSIGN_OR_RETURN(ws_, reserve_workspace(device_, own_config_, sharding_, options));
    DHS_RETURN_IF_ERROR(upload_tables(weights, uploader));
    precision_ = choose_precision(options.precision, weights);
    Packer packer(uploader, precision_, options.gemm);
    final_norm_ = packer.vector(weights.final_norm);
    for (const LayerWeights& layer : weights.layers) {
      layers_.push_back(pack_layer(layer, config_, sharding_, packer));
      DHS_RETURN_IF_ERROR(packer.status());
      if (layers_.size() % 8 == 0 || layers_.size() == weights.layers.size()) {
        log_info("model: packed ", layers_.size(), " of ", weights.layers.size(), " layers");
      }
    }
    lm_head_ = packer.stack({all_rows(weights.lm_head)});  // whole on every rank
    DHS_RETURN_IF_ERROR(packer.status());
    log_library_use(options, device_.kind(), packer.library_use());
    return absl::OkStatus();
  }

  const ModelDescription& description() const override { return description_; }
  TensorView<const float, 2> logits() const override { return first_rows(ws_.logits, num_logits_); }

  void forward(const TokenBatch& batch, KvStore& kv, TapObserver* taps) override {
    const int64_t n = batch.rows.num_rows();
    embed(batch);
    const AttentionContext attention{
        own_config_, rope_frequencies_.data(), ws_, kv, batch.rows, device_,
        taps,        sharding_.summing};
    const MlpContext mlp{own_config_, ws_, n, batch.max_rank_rows, device_, taps, sharding_};
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const PackedLayer& weights = layers_[layer];
      normalize(weights.input_norm, n);
      run_attention(attention, weights, static_cast<int>(layer));
      add_to_residual(n);
      normalize(weights.post_attention_norm, n);
      run_mlp(mlp, weights, static_cast<int>(layer));
      add_to_residual(n);
      keep_taps(static_cast<int32_t>(layer), n);
      if (taps == nullptr) continue;
      device_.synchronize();
      taps->on_tensor(Tap::kLayerOut, layer, first_rows(ws_.hidden, n));
    }
    num_rows_ = n;
    if (taps_final_hidden_) {
      launch_rms_norm({first_rows(ws_.hidden, n), final_norm_.data(),
                       static_cast<float>(config_.rms_norm_eps), first_rows(ws_.taps, n)},
                      device_.stream());
    }
    project_logits(batch.logit_rows);
  }

  TensorView<const float, 2> taps() const override { return first_rows(ws_.taps, num_rows_); }
  SharedWeights shared_weights() const override {
    return {embedding_dtype_, embedding_.data(), lm_head_.get(), precision_};
  }

 private:
  absl::Status upload_tables(const TargetWeights& weights, WeightUploader& uploader) {
    const std::vector<double> frequencies =
        rope_frequencies(config_.qk_rope_dim, config_.rope_theta,
                         config_.yarn.has_value() ? &*config_.yarn : nullptr);
    DHS_ASSIGN_OR_RETURN(
        rope_frequencies_.memory,
        uploader.upload(frequencies.data(), std::ssize(frequencies) * int64_t{sizeof(double)}));
    const WeightMatrix& table = weights.embedding;
    embedding_dtype_ = table.dtype;
    if (table.dtype != DType::kF8E4m3) {
      DHS_ASSIGN_OR_RETURN(embedding_, uploader.upload(table.data, table.stored_bytes()));
      return absl::OkStatus();
    }
    embedding_dtype_ = DType::kF32;
    std::vector<float> decoded(table.rows * table.columns);
    table.to_f32(decoded.data());
    DHS_ASSIGN_OR_RETURN(
        embedding_, uploader.upload(decoded.data(), std::ssize(decoded) * int64_t{sizeof(float)}));
    return absl::OkStatus();
  }

  void embed(const TokenBatch& batch) {
    launch_embedding({.dtype = embedding_dtype_,
                      .table = embedding_.data(),
                      .tokens = batch.tokens,
                      .positions = batch.rows.positions,
                      .out = first_rows(ws_.hidden, batch.rows.num_rows())},
                     device_.stream());
  }

  void normalize(const DeviceVector<float>& weight, int64_t n) {
    launch_rms_norm({first_rows(ws_.hidden, n), weight.data(),
                     static_cast<float>(config_.rms_norm_eps), first_rows(ws_.normed, n)},
                    device_.stream());
  }

  void add_to_residual(int64_t n) {
    launch_add({first_rows(ws_.sublayer_out, n), first_rows(ws_.hidden, n)}, device_.stream());
  }

  // The residual stream behind `layer`, to its columns where it is tapped.
  void keep_taps(int32_t layer, int64_t n) {
    for (size_t i = 0; i < tapped_layers_.size(); ++i) {
      if (tapped_layers_[i] != layer) continue;
      const int64_t width = config_.hidden_dim;
      launch_take_rows({.x = first_rows(ws_.hidden, n),
                        .rows = {},
                        .out = slice(ws_.taps, n, static_cast<int64_t>(i) * width, width)},
                       device_.stream());
    }
  }

  void project_logits(TensorView<const int32_t, 1> logit_rows) {
    num_logits_ = logit_rows.sizes[0];
    const auto in = first_rows(ws_.logit_in, num_logits_);
    launch_take_rows({ws_.hidden, logit_rows, in}, device_.stream());
    launch_rms_norm({in, final_norm_.data(), static_cast<float>(config_.rms_norm_eps), in},
                    device_.stream());
    launch_gemm({lm_head_.get(), in, first_rows(ws_.logits, num_logits_)}, device_.stream());
  }

  const Checkpoint checkpoint_;
  const TargetConfig config_;
  const Sharding sharding_;
  const TargetConfig own_config_;  // this rank's part
  const ModelDescription description_;
  Device& device_;
  DeviceVector<double> rope_frequencies_;
  DType embedding_dtype_ = DType::kF32;
  MemoryRange embedding_;
  std::vector<PackedLayer> layers_;
  DeviceVector<float> final_norm_;
  PackedMatrixPtr lm_head_;
  Workspace ws_;
  GemmPrecision precision_ = GemmPrecision::kF32;
  std::vector<int32_t> tapped_layers_;
  bool taps_final_hidden_ = false;
  int64_t num_rows_ = 0;  // of the latest forward pass
  int64_t num_logits_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TargetModel>> load_target_model(const std::string& directory,
                                                               Device& device,
                                                               const ModelOptions& options) {
  DHS_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(directory));
  DHS_ASSIGN_OR_RETURN(
      TargetConfig config,
      parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json()));
  DHS_ASSIGN_OR_RETURN(const Sharding sharding, make_sharding(config, options));
  auto target =
      std::make_unique<MlaTarget>(std::move(checkpoint), std::move(config), sharding, device);
  DHS_RETURN_IF_ERROR(target->load(options));
  return target;
}

}  // namespace dhs
