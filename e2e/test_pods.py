"""What a job may ask of its pods: any image, a long name, an overlay on the whole template."""

from __future__ import annotations

from e2e.job_namespace import JobNamespace, build_shell
from fray.vocabulary import CONTAINER, LABEL_JOB

LONGEST = 63


def test_a_command_runs_in_an_image_without_python(jobs: JobNamespace) -> None:
    script = 'command -v python3 || echo "$FRAY_JOB_NAME: no python"'
    status = jobs.run(build_shell("plain", script))
    assert status["phase"] == "Succeeded", status
    assert jobs.logs("plain") == ["plain: no python\n"]


def test_a_name_of_63_characters_runs_and_its_hosts_find_each_other(jobs: JobNamespace) -> None:
    """Names of pods and hosts have to be shorter than that, and are derived from it all the same."""
    name = "n" * LONGEST
    # Host 1 asks host 0 at the address that both are given. From a file: `nc` ends with its caller's input,
    # which is empty, and would say nothing if its own came later.
    script = """
        address=${FRAY_COORDINATOR_ADDRESS%:*} port=${FRAY_COORDINATOR_ADDRESS##*:}
        if test "$FRAY_HOST" = 0; then echo hello > /tmp/hello; nc -l -p "$port" < /tmp/hello; exit; fi
        until answer=$(nc "$address" "$port" 2>/dev/null) && test -n "$answer"; do sleep 0.2; done
        echo "$answer"
    """
    status = jobs.run(build_shell(name, script, replicas=2))
    assert status["phase"] == "Succeeded", status
    assert jobs.logs(name)[1] == "hello\n"
    assert [pod["metadata"]["labels"][LABEL_JOB] for pod in jobs.pods(name)] == [name, name]


def test_a_job_is_over_when_its_own_container_is_and_its_log_stays(jobs: JobNamespace) -> None:
    proxy = {"name": "proxy", "image": "fray.test/busybox:1", "command": ["sleep", "100000"]}
    overlay = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [proxy]}}
    status = jobs.run(build_shell("accompanied", "echo done", podTemplate=overlay))
    assert status["phase"] == "Succeeded", status
    (pod,) = jobs.pods("accompanied")
    assert pod["status"]["phase"] == "Succeeded"
    assert jobs.logs("accompanied") == ["done\n"]


def test_an_overlay_adds_to_the_pod_and_keeps_what_fray_put_there(jobs: JobNamespace) -> None:
    jobs.kubectl("create", "configmap", "settings", "--from-literal=greeting=hello from a volume")
    overlay = {
        "metadata": {"labels": {"team": "research"}, "annotations": {"example.com/note": "kept"}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsUser": 1234, "runAsGroup": 1234},
            "initContainers": [
                {
                    "name": "before",
                    "image": "fray.test/busybox:1",
                    "command": ["sh", "-c", "cat /settings/greeting > /handed/over"],
                    "volumeMounts": [
                        {"name": "settings", "mountPath": "/settings"},
                        {"name": "handed", "mountPath": "/handed"},
                    ],
                }
            ],
            "containers": [
                {
                    "name": CONTAINER,
                    "env": [{"name": "FROM_OVERLAY", "value": "$(FRAY_JOB_NAME)-overlaid"}],
                    "volumeMounts": [{"name": "handed", "mountPath": "/handed"}],
                    "resources": {"limits": {"memory": "64Mi"}},
                }
            ],
            "volumes": [
                {"name": "settings", "configMap": {"name": "settings"}},
                {"name": "handed", "emptyDir": {}},
            ],
        },
    }
    script = 'cat /handed/over; echo; id -u; echo "$FROM_OVERLAY"; echo "attempt $FRAY_ATTEMPT"; df /dev/shm'
    status = jobs.run(build_shell("overlaid", script, podTemplate=overlay))
    assert status["phase"] == "Succeeded", status
    (log,) = jobs.logs("overlaid")
    assert log.splitlines()[:4] == ["hello from a volume", "1234", "overlaid-overlaid", "attempt 1"]
    (pod,) = jobs.pods("overlaid")
    assert pod["metadata"]["labels"]["team"] == "research"
    assert pod["metadata"]["annotations"]["example.com/note"] == "kept"
    assert pod["spec"]["serviceAccountName"] == "fray-job"
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["limits"]["memory"] == "64Mi"
