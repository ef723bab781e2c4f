"""Pure builders: a PDDDeployment and facts about its sites become manifests.

One file an object's concern; `sites` puts them together by member cluster. Nothing here reads a clock, a
file or an API.
"""
