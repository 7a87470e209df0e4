# stress-ng's stressors of file systems, all at the same time; each verifies its work.
# stress-excluded.txt lists those that are left out.

excluded=$(awk '!/^(#|$)/ { print $1 }' "$SCRATCH/scripts/stress-excluded.txt" | paste -sd,)
mkdir stress
stress-ng --verify --class filesystem --all 1 -t 60s --oomable --temp-path stress \
    -x "$excluded" 2>&1 | tee "$SCRATCH/said"
if grep ': fail:' "$SCRATCH/said"; then exit 1; fi
test -z "$(ls -A stress)"
