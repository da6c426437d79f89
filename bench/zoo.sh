# zoo.sh - the six models of the PyTorch paper in training beside PyTorch: writes bench/results/models.md. Takes an hour or
# more; on a calm machine. TURNS=1 STEPS=2 MODELS=ncf COMPILE=0 RESULTS=file is a trial. Without PyTorch: our column alone.
# In parts, as MODELS=alexnet, then MODELS=vgg19: the page has all that was measured since the program was built. One that
# was cut goes on where it was (build/zoo.log; FRESH=1 begins anew).
B=${B:-build}
PYTHON=${PYTHON:-python3}
make "$B/models/train" || exit 1
if "$PYTHON" -c 'import torch, numpy' 2>/dev/null; then exec "$PYTHON" bench/zoo.py table "$B"; fi
echo "no $PYTHON with torch and numpy: figures of this library alone"
for name in ${MODELS:-alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf}; do
    for threads in 1 2; do "$B/models/train" "$name" "${BATCH:-}" "${STEPS:-10}" $threads | tail -n 1; done
done
