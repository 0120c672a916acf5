"""Learn features without labels; pre-train layers, then fine-tune the whole network."""

import gradwise as gw

# No labels are used: the score is how well the network restores corrupted digits.
learned = gw.fit("digits", learner="denoising:100", set={"stopping.epochs": 20})
low, high = learned.test_interval
print(f"{learned.record.metric} of 100 features: {learned.test:.1f} [{low:.1f}, {high:.1f}] on test digits")
print("features:", learned.predict(gw.read("digits").inputs).shape)

# Two such layers, each trained on the codes of the one below; then the whole network, with the labels.
model = gw.fit("digits", pretrain="denoising:100x2", set={"layers.stopping.epochs": 20})
print(f"pre-trained and fine-tuned: test error {model.test:.1%}")
